-- Members that were taken out of their group go where their port goes: what they were given waits in its line.
UPDATE service AS member
   SET host_id = port.host_id
  FROM service AS port
 WHERE port.id = member.port_id AND member.host_id <> port.host_id
RETURNING member.id, member.host_id;
