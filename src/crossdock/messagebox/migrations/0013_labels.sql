-- Labels are looked at wherever a reference moves, and what waits at a host is looked at when the host loses one.
ALTER TABLE host ADD COLUMN labelled boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN host.labelled IS 'has labels or had some: only then what is here may carry any, and is looked at where it moves';
UPDATE host SET labelled = EXISTS (SELECT FROM host WHERE labels <> '{}');

CREATE FUNCTION why_withheld(message_number uuid, host_number smallint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('The host %s lacks the label %s of this message. Give it the label, or give the port another host; then '
                  'resume the message.', host.name, string_agg(label, ', ' ORDER BY label))
      FROM message, host,
           -- No text of PostgreSQL holds \u0000, and labels have none: whatever stands for it, they stay as they are.
           json_array_elements_text(CASE WHEN context::text LIKE '%"labels"%'
                                         THEN replace(context::text, '\u0000', '\ufffd')::json -> 'labels' END) AS label
     WHERE message.id = message_number AND host.id = host_number AND label <> ALL (host.labels)
     GROUP BY host.name
$$;
COMMENT ON FUNCTION why_withheld IS 'why a host must not be given a message: it lacks labels; null if it has them all';

CREATE FUNCTION withhold_labelled(host_number smallint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH queued AS (
        DELETE FROM queue WHERE host_id = host_number AND why_withheld(message_id, host_number) IS NOT NULL RETURNING *
    ), postponed AS (
        DELETE FROM scheduled WHERE host_id = host_number AND why_withheld(message_id, host_number) IS NOT NULL RETURNING *
    ), stopped AS (
        UPDATE suspended
           SET kind = 'send', reason = why_withheld(message_id, host_number)
         WHERE host_id = host_number AND kind = 'stopped' AND why_withheld(message_id, host_number) IS NOT NULL
    )
    INSERT INTO suspended (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, line,
                           instance_id, reason)
    SELECT host_number, sequence, CASE WHEN line < 0 THEN 'response' ELSE 'send' END, message_id, subscription_id, service_id,
           priority, attempt, line, instance_id, why_withheld(message_id, host_number)
      FROM (SELECT sequence, message_id, subscription_id, service_id, priority, attempt, line, instance_id FROM queued
             UNION ALL
            SELECT sequence, message_id, subscription_id, service_id, priority, attempt, line, instance_id FROM postponed)
           AS withheld;
END $$;
COMMENT ON FUNCTION withhold_labelled IS 'a host has lost labels: what waits there and carries them is suspended';

-- So far nobody looked: labels may have been lost, and references moved, before.
SELECT withhold_labelled(id) FROM host WHERE labelled;
