-- The subscriptions of every epoch: without them nobody could say why a message went where it did, once they have changed.
CREATE TABLE subscription_version (
    subscription_id  integer     NOT NULL,
    service_id       integer     NOT NULL,
    service          text        NOT NULL,
    application      text        NOT NULL,
    predicate        json        NOT NULL,
    priority         smallint    NOT NULL,
    from_epoch       bigint      NOT NULL,
    until_epoch      bigint,
    from_at          timestamptz NOT NULL DEFAULT clock(),
    until_at         timestamptz,
    number           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    CONSTRAINT a_version_ends_once CHECK ((until_epoch IS NULL) = (until_at IS NULL))
);
CREATE INDEX ON subscription_version (subscription_id);
CREATE INDEX ON subscription_version (until_epoch);
COMMENT ON TABLE subscription_version IS 'the subscriptions of every epoch of which a message is tracked, as they were then';
COMMENT ON COLUMN subscription_version.predicate IS 'its predicate rows: group 0 is its address, the others are the filter';
COMMENT ON COLUMN subscription_version.until_epoch IS 'the first epoch in which it is gone or another; null for what is enlisted now';

CREATE TABLE erased_message (
    message_id  uuid        PRIMARY KEY,
    erased_at   timestamptz NOT NULL DEFAULT clock()
);
COMMENT ON TABLE erased_message IS 'messages whose properties and bodies no reader of the track shows any more, until they are rewritten without them';

CREATE FUNCTION keep_versions() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    -- What has changed in this epoch is written down as it is now, and what was before ends. A service that was only started,
    -- stopped or labelled anew matches as it did, and has no new version.
    WITH present AS (
        SELECT subscription.id, subscription.service_id, service.name, service.application, subscription.priority,
               coalesce((SELECT json_agg(json_build_array(group_number, position, property, type, operator, value, pass)
                                         ORDER BY group_number, position)
                           FROM predicate
                          WHERE predicate.subscription_id = subscription.id), '[]') AS predicate
          FROM box
          JOIN subscription ON subscription.epoch = box.epoch
          JOIN service ON service.id = subscription.service_id
    ), changed AS (
        SELECT present.*
          FROM present
          LEFT JOIN subscription_version AS known ON known.subscription_id = present.id AND known.until_epoch IS NULL
         WHERE (known.predicate::text, known.priority) IS DISTINCT FROM (present.predicate::text, present.priority)
    ), ended AS (
        UPDATE subscription_version AS known
           SET until_epoch = box.epoch, until_at = clock()
          FROM box
         WHERE known.until_epoch IS NULL
           AND known.subscription_id IN (SELECT id FROM changed
                                          UNION ALL
                                         SELECT subscription_id FROM subscription_removal WHERE epoch = (SELECT epoch FROM box))
    )
    INSERT INTO subscription_version (subscription_id, service_id, service, application, predicate, priority, from_epoch)
    SELECT changed.id, changed.service_id, changed.name, changed.application, changed.predicate, changed.priority, box.epoch
      FROM changed
     CROSS JOIN box;
END $$;
REVOKE ALL ON FUNCTION keep_versions FROM PUBLIC;
COMMENT ON FUNCTION keep_versions IS 'write down what subscriptions are since the present epoch, from our tables: whoever changes them cannot write the past';

-- What is enlisted already: since when is not known, and nothing before was tracked.
INSERT INTO subscription_version (subscription_id, service_id, service, application, predicate, priority, from_epoch, from_at)
SELECT subscription.id, service.id, service.name, service.application,
       coalesce((SELECT json_agg(json_build_array(group_number, position, property, type, operator, value, pass)
                                 ORDER BY group_number, position)
                   FROM predicate
                  WHERE predicate.subscription_id = subscription.id), '[]'),
       subscription.priority, 0, (SELECT created_at FROM box)
  FROM subscription
  JOIN service ON service.id = subscription.service_id;
