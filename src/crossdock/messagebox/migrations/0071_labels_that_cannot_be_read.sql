-- JSON may hold what PostgreSQL stores and cannot read: half of a surrogate pair, or more levels than its stack has room for. The
-- role of a host may write such a context, and no reference to it may stop the others. A reason names labels, however many there
-- are, in a sentence.

CREATE OR REPLACE FUNCTION labels_of(context json) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF context::text NOT LIKE '%"labels"%' THEN
        RETURN '{}';
    END IF;
    BEGIN
        -- No text of PostgreSQL holds \u0000, and labels have none: whatever stands for it, they stay as they are.
        RETURN ARRAY(SELECT label
                       FROM (SELECT replace(context::text, '\u0000', '\ufffd')::json -> 'labels' AS labels) AS readable,
                            json_array_elements_text(CASE WHEN json_typeof(readable.labels) = 'array' THEN readable.labels END)
                                AS label);
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        RETURN '{}'; -- whoever is given such a message cannot read it either, and suspends it
    END;
END $$;
COMMENT ON FUNCTION labels_of IS 'the labels in a context as it is stored; none where it cannot be read';

CREATE OR REPLACE FUNCTION why_withheld(message_number uuid, host_number smallint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('The host %s lacks the label %s of this message. Give it the label, or give the port another host; then '
                  'resume the message.', host.name, left(string_agg(label, ', ' ORDER BY label), 1000))
      FROM message, host, unnest(labels_of(message.context)) AS label
     WHERE message.id = message_number AND host.id = host_number AND label <> ALL (host.labels)
     GROUP BY host.name
$$;
