-- Members of groups whose state is not what their group and their port make of it: the lower of the two.
SELECT member.id, member.state, member.host_id, due.state
  FROM service AS member
  JOIN service AS port ON port.id = member.port_id
  JOIN send_port_group AS grouped ON grouped.name = member.group_name
 CROSS JOIN LATERAL (SELECT CASE WHEN NOT (member.deployed AND port.deployed AND grouped.deployed) THEN 'unenlisted'
                                 WHEN 'unenlisted' IN (port.state, grouped.state) THEN 'unenlisted'
                                 WHEN 'stopped' IN (port.state, grouped.state) THEN 'stopped'
                                 ELSE 'started'
                            END AS state) AS due
 WHERE member.state <> due.state
 ORDER BY member.id;
