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
