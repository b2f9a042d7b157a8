-- Whether any of these claims is there still: one that was settled and made anew since was made by another transaction.
SELECT EXISTS (SELECT
                 FROM unnest(%(sequence)s::bigint[], %(claim)s::bigint[]) AS wanted (sequence, claim),
                      LATERAL (SELECT living.xmin
                                 FROM {claimed} AS living
                                WHERE living.host_id = %(host)s AND living.sequence = wanted.sequence
                                LIMIT 1) AS mine
                WHERE mine.xmin::text::bigint = wanted.claim);
