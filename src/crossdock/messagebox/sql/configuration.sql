-- What is deployed, for the processes that run it.


-- name: list_properties
SELECT name, type FROM property;


-- name: read_clock
SELECT clock();


-- name: list_host_ids
SELECT name, id FROM host ORDER BY id;


-- name: list_location_definitions
-- Receive locations of hosts that are ours.
SELECT id, host_id, definition FROM location_definition WHERE enabled = %(enabled)s;


-- name: list_service_definitions
-- Send ports, also those no longer enlisted.
SELECT id, host_id, definition FROM service_definition WHERE class = 'messaging';


-- name: list_orchestration_definitions
-- Orchestrations, also those no longer enlisted: they may have running instances.
SELECT id, host_id, definition FROM service_definition WHERE class = 'orchestration';


-- name: list_service_names
SELECT id, name FROM service;


-- name: list_waiting_services
-- Two-way receive ports.
SELECT name, id FROM service WHERE class = 'messaging isolated' AND deployed;


-- name: find_group_address
SELECT group_id, state FROM send_port_group WHERE name = %(name)s AND deployed;


-- name: find_port_address
SELECT transport_id, state
  FROM service
 WHERE name = %(name)s AND deployed AND group_name IS NULL AND class <> 'messaging isolated';


-- name: list_service_classes
SELECT name, polling_interval, dequeue_threads FROM service_class;
