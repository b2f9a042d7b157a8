-- Sources: listed, read, published, forgotten.


-- name: list_intake
-- Enter sources in the intake ledger. Two that list the same sources in another order would wait for each other: the lock
-- lets one after the other enter them.
WITH listed AS (
    SELECT location_id, identity, size, random_bits
      FROM unnest(%(location)s::integer[], %(identity)s::bytea[], %(size)s::bigint[], %(random_bits)s::bigint[])
           AS item (location_id, identity, size, random_bits),
           (SELECT pg_advisory_xact_lock(%(lock)s)) AS locked
)
INSERT INTO intake (location_id, identity, size, random_bits)
SELECT location_id, identity, size, random_bits
  FROM listed
    ON CONFLICT (sha256(identity)) DO NOTHING
RETURNING sequence;


-- name: claim_intake
-- Claim the sources of the next micro-batch: those of a host that are due, up to so many and so many bytes. One is always
-- taken, however large it is. SKIP LOCKED lets pipelines share the ledger. What is claimed and published stays claimed.
-- No index has `claimed_by`: to keep one up to date would take several times as long as the claim.
WITH due AS (
    SELECT sequence, size
      FROM intake
     WHERE sequence > %(after)s
       AND claimed_by = 0
       AND due_at <= clock()
       AND location_id IN (SELECT id FROM receive_location WHERE host_id = %(host)s AND enabled)
     ORDER BY sequence
     LIMIT %(items)s
       FOR NO KEY UPDATE SKIP LOCKED
), counted AS (
    SELECT sequence, row_number() OVER following AS items, sum(size) OVER following AS bytes
      FROM due
    WINDOW following AS (ORDER BY sequence ROWS UNBOUNDED PRECEDING)
)
UPDATE intake
   SET claimed_by = %(number)s
       -- An array and not a join: a plan for any limit would read the whole ledger.
 WHERE sequence = ANY (ARRAY(SELECT sequence FROM counted WHERE items = 1 OR bytes <= %(bytes)s))
RETURNING sequence, location_id, identity, size, random_bits, attempts;


-- name: hold_claims
-- What is claimed under this number is claimed for as long as the session lives.
SELECT pg_advisory_lock(%(lock)s, %(number)s);


-- name: living_pipelines
-- The numbers of the pipelines that live: each session holds the lock of its number.
SELECT objid::bigint
  FROM pg_locks
 WHERE locktype = 'advisory'
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND classid = %(lock)s::integer::oid
   AND objsubid = 2
   AND granted;


-- name: release_intake
-- Free what was claimed and not published by a pipeline that is gone: its lock went with its session. The locks are looked
-- at after the rows, so that nobody is taken for dead who has just come and claimed.
UPDATE intake
   SET claimed_by = 0
 WHERE claimed_by > 0
   AND claimed_by::oid NOT IN (SELECT objid
                                 FROM pg_locks
                                WHERE locktype = 'advisory'
                                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                                  AND classid = %(lock)s::integer::oid
                                  AND objsubid = 2
                                  AND granted)
   AND (SELECT true FROM publication WHERE intake_sequence = intake.sequence AND last LIMIT 1) IS NULL;


-- name: read_intake
-- Sources that are not published yet.
SELECT sequence, location_id, identity, size, random_bits, attempts
  FROM intake
 WHERE sequence > %(start)s AND sequence <= %(end)s
   AND (SELECT true FROM publication WHERE intake_sequence = intake.sequence AND last LIMIT 1) IS NULL
 ORDER BY sequence;


-- name: lock_intake
-- The ledger rows that still live, locked until the end of the transaction. A late second attempt finds no row, since the
-- source has been published, removed and forgotten; it must not publish again. An attempt from before a restore may find
-- another source under its number: the random bits tell.
SELECT sequence, random_bits
  FROM intake
 WHERE sequence = ANY(%(sequence)s)
   FOR KEY SHARE;


-- name: claim_publication
-- Take the right to publish these ranges. A range that comes back is ours; one that does not was published before. A range
-- of a large source has to begin where the one before it ended, so that none is left out and none overlaps.
INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended, range_end,
                         last)
SELECT *
  FROM unnest(%(sequence)s::bigint[], %(range_start)s::bigint[], %(location)s::integer[], %(received)s::integer[],
              %(published)s::integer[], %(unrouted)s::integer[], %(suspended)s::integer[], %(range_end)s::bigint[],
              %(last)s::boolean[])
       AS range (sequence, range_start)
 WHERE range.range_start = (SELECT coalesce(max(coalesce(publication.range_end, publication.range_start)), 0)
                              FROM publication
                             WHERE publication.intake_sequence = range.sequence)
    ON CONFLICT DO NOTHING
RETURNING intake_sequence, range_start;


-- name: intake_progress
-- How far a source is published: where its next range begins, and how many messages came before. One that was read whole
-- has no end of a range, and no next one.
SELECT coalesce(max(coalesce(range_end, 9223372036854775807)), 0), coalesce(sum(received), 0)::bigint
  FROM publication
 WHERE intake_sequence = %(sequence)s;


-- name: try_intake
-- Note that a source is being tried, and commit that before it is read: whoever comes after the end of the process knows it.
-- The row stays locked for no longer, and no publisher waits for it: none changes the key.
UPDATE intake
   SET attempts = greatest(0, CASE WHEN %(afresh)s THEN 0 ELSE attempts END + %(change)s)
 WHERE sequence = %(sequence)s
RETURNING attempts;


-- name: postpone_intake
-- A source could not be read: nobody has it any more, and it is due after a wait that doubles each time.
UPDATE intake
   SET claimed_by = 0, failures = failures + 1, reason = %(reason)s,
       due_at = clock() + least(%(longest)s::interval, %(first)s::interval * 2 ^ least(failures, 20))
 WHERE sequence = %(sequence)s
   AND (SELECT true FROM publication WHERE intake_sequence = %(sequence)s AND last LIMIT 1) IS NULL
RETURNING sequence;


-- name: waiting_intake
-- How many sources nobody reads now: postponed ones, and those of disabled locations.
SELECT count(*)
  FROM intake
 WHERE claimed_by = 0
   AND (due_at > clock() OR location_id IN (SELECT id FROM receive_location WHERE NOT enabled));


-- name: settled_intake
-- Sources whose messages are in the MessageBox and that can be removed where they came from.
SELECT sequence, location_id, identity
  FROM intake
 WHERE sequence > %(after)s
   AND EXISTS (SELECT FROM publication WHERE intake_sequence = intake.sequence AND last)
 ORDER BY sequence
 LIMIT %(limit)s;


-- name: forget_intake
-- Delete the ledger rows of sources that were published and then removed.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s);


-- name: abandon_intake
-- Delete the ledger rows of sources that vanished or changed, unless something of them is published.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s)
   AND (SELECT true FROM publication WHERE intake_sequence = intake.sequence LIMIT 1) IS NULL;


-- name: fold_publications
-- Publications whose source is forgotten can never be asked for again: only their counts are kept, all together and by the
-- minute. The others are counted too, once: a source may stay known for long.
WITH gone AS (
    DELETE FROM publication
     WHERE NOT EXISTS (SELECT FROM intake WHERE intake.sequence = publication.intake_sequence)
    RETURNING location_id, published_at, received, published, unrouted, suspended, counted
), staying AS (
    UPDATE publication
       SET counted = true
     WHERE NOT counted
       AND EXISTS (SELECT FROM intake WHERE intake.sequence = publication.intake_sequence)
    RETURNING location_id, published_at, received, published, unrouted, suspended
), new AS MATERIALIZED (
    SELECT location_id, date_bin('1 minute', published_at, '2000-01-01Z') AS minute,
           sum(received) AS received, sum(published) AS published, sum(unrouted) AS unrouted, sum(suspended) AS suspended
      FROM (SELECT location_id, published_at, received, published, unrouted, suspended FROM gone WHERE NOT counted
             UNION ALL
            SELECT * FROM staying) AS publication
     GROUP BY location_id, minute
), added AS (
    INSERT INTO publication_total AS total (location_id, received, published, unrouted, suspended)
    SELECT location_id, sum(received), sum(published), sum(unrouted), sum(suspended)
      FROM new
     GROUP BY location_id
        ON CONFLICT (location_id) DO UPDATE
       SET received = total.received + excluded.received, published = total.published + excluded.published,
           unrouted = total.unrouted + excluded.unrouted, suspended = total.suspended + excluded.suspended
)
INSERT INTO publication_minute AS known (minute, location_id, received, published, unrouted, suspended)
SELECT minute, location_id, received, published, unrouted, suspended
  FROM new
    ON CONFLICT (minute, location_id) DO UPDATE
   SET received = known.received + excluded.received, published = known.published + excluded.published,
       unrouted = known.unrouted + excluded.unrouted, suspended = known.suspended + excluded.suspended;


-- name: lock_abandoned
-- Wait for whoever is publishing these sources.
SELECT FROM intake WHERE sequence = ANY(%(sequence)s) FOR UPDATE;
