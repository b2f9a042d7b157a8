-- Count what was received without a source in the ledger: nobody can ask for it again, so any key will do.
INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
SELECT -nextval('express_sequence'), 0, *
  FROM unnest(%(location)s::integer[], %(received)s::integer[], %(published)s::integer[], %(unrouted)s::integer[],
              %(suspended)s::integer[]);
