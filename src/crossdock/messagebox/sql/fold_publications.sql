-- Publications whose source is forgotten can never be asked for again: only their counts are kept.
WITH old AS (
    DELETE FROM publication
     WHERE NOT EXISTS (SELECT FROM intake WHERE intake.sequence = publication.intake_sequence)
    RETURNING location_id, received, published, unrouted, suspended
)
INSERT INTO publication_total AS total (location_id, received, published, unrouted, suspended)
SELECT location_id, sum(received), sum(published), sum(unrouted), sum(suspended)
  FROM old
 GROUP BY location_id
    ON CONFLICT (location_id) DO UPDATE
   SET received = total.received + excluded.received, published = total.published + excluded.published,
       unrouted = total.unrouted + excluded.unrouted, suspended = total.suspended + excluded.suspended;
