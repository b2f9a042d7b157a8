-- A reference names a message of the same call. That is asked so that NULL, for all messages or for one, is refused too.
CREATE OR REPLACE FUNCTION check_exceptions(exceptions json, message_ids uuid[], publisher name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT
                 FROM unnest(ARRAY['queued', 'stopped', 'suspended', 'refused']) AS kind,
                      json_to_recordset(exceptions -> kind) AS reference (message_id uuid)
                WHERE (reference.message_id = ANY (message_ids)) IS NOT TRUE) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a reference to a message that is not published here';
    END IF;
    -- Who waits elsewhere was locked when it was found, and a port that is not stopped would get its message at no time.
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'stopped') AS reference (subscription_id bigint)
                WHERE NOT EXISTS (SELECT
                                    FROM subscription JOIN service ON service.id = subscription.service_id
                                   WHERE subscription.id = reference.subscription_id AND service.state = 'stopped')) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a message is suspended for a port that is not stopped';
    END IF;
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'suspended') AS reference (host_id smallint)
                WHERE (reference.host_id = ANY (own_hosts(publisher))) IS NOT TRUE)
       OR EXISTS (SELECT
                    FROM json_to_recordset(exceptions -> 'awaited') AS waiting (service_id integer, host_id smallint)
                   WHERE NOT EXISTS (SELECT
                                       FROM service
                                      WHERE service.id = waiting.service_id
                                        AND service.host_id = waiting.host_id
                                        AND service.host_id = ANY (own_hosts(publisher)))) THEN
        RAISE insufficient_privilege USING MESSAGE = 'something is suspended, or waits, at a host of others';
    END IF;
END $$;

-- A role may write when its instances were seen. A time that nobody can read, or reckon with, would stop `get hosts` for all.
UPDATE host_instance SET seen_at = clock() WHERE seen_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z';
ALTER TABLE host_instance
    ADD CONSTRAINT instances_are_seen_in_our_time CHECK (seen_at BETWEEN '1970-01-01Z' AND '9999-01-01Z');

-- What began before a service was ordered ends first, also where a failure has blocked its subqueue meanwhile.
CREATE OR REPLACE FUNCTION subqueue_may_go_on(ordered_service integer, blocking bigint) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    -- At every host: what blocks a subqueue may be at one that the service has left since. What began before the service was
    -- ordered ends first, also where a failure has blocked the subqueue meanwhile.
    SELECT NOT EXISTS (SELECT
                         FROM host
                         JOIN suspended ON suspended.host_id = host.id AND suspended.sequence = blocking)
       AND NOT EXISTS (SELECT
                         FROM claimed
                         JOIN service ON service.id = claimed.service_id
                        WHERE coalesce(service.port_id, service.id) = ordered_service AND claimed.subqueue = 0)
       AND NOT EXISTS (SELECT
                         FROM scheduled
                         JOIN service ON service.id = scheduled.service_id
                        WHERE coalesce(service.port_id, service.id) = ordered_service AND scheduled.subqueue = 0);
END;
COMMENT ON FUNCTION subqueue_may_go_on IS 'whether what blocks an ordered subqueue is no longer there: a suspended reference, and what began before it was ordered';
