-- Take the right to publish these ranges. A range that comes back is ours; one that does not was published before.
INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
SELECT *
  FROM unnest(%(sequence)s::bigint[], %(range_start)s::bigint[], %(location)s::integer[], %(received)s::integer[],
              %(published)s::integer[], %(unrouted)s::integer[], %(suspended)s::integer[])
    ON CONFLICT DO NOTHING
RETURNING intake_sequence, range_start;
