-- Which messages were delivered by which statement: `statement` is a digest of it, a blank, and one of the content. The
-- partner's role may not be allowed to make tables, so this runs only if the table is missing. Made behind a lock: two
-- processes that make it at once would fail in the catalogue.
CREATE TABLE IF NOT EXISTS crossdock_delivery (
    message_id   uuid        NOT NULL,
    statement    text        NOT NULL,
    delivered_at timestamptz NOT NULL,
    CONSTRAINT each_message_is_delivered_once_by_a_statement PRIMARY KEY (message_id, statement)
);
