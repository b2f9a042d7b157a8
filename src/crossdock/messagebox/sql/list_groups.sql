-- Groups of send ports with their state and their members.
SELECT send_port_group.name, send_port_group.application,
       CASE WHEN send_port_group.deployed THEN send_port_group.state ELSE 'unenlisted' END AS state,
       ARRAY(SELECT port.name
               FROM service AS member
               JOIN service AS port ON port.id = member.port_id
              WHERE member.group_name = send_port_group.name AND member.deployed
              ORDER BY port.name) AS ports
  FROM send_port_group
 ORDER BY send_port_group.application, send_port_group.name;
