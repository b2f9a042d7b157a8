-- Of a group: whether a port of it is enlisted. Of a port: the groups that are enlisted and have no other port that is.
SELECT grouped.name
  FROM send_port_group AS grouped
 WHERE grouped.deployed
   AND CASE WHEN grouped.name = %(name)s
             AND NOT EXISTS (SELECT FROM service WHERE name = %(name)s AND port_id IS NULL AND deployed)
            THEN EXISTS (SELECT
                           FROM service AS member
                           JOIN service AS port ON port.id = member.port_id
                          WHERE member.group_name = grouped.name AND member.deployed AND port.state <> 'unenlisted')
            ELSE grouped.state <> 'unenlisted'
             AND (SELECT array_agg(port.name)
                    FROM service AS member
                    JOIN service AS port ON port.id = member.port_id
                   WHERE member.group_name = grouped.name AND member.deployed AND port.state <> 'unenlisted')
               = ARRAY[%(name)s]
       END
 ORDER BY grouped.name
 LIMIT 1;
