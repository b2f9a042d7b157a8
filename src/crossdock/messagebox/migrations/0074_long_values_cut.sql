-- The role of a host lets instances wait by values of a megabyte, which compress to nothing. Lists of people hold many of them.

CREATE OR REPLACE VIEW shown_waiting AS
    SELECT waiting.id, waiting.instance_id, waiting.host_id, waiting.correlation_id,
           ARRAY(SELECT CASE WHEN pair.property = 'BTS.EpmRRCorrelationToken'
                               OR EXISTS (SELECT FROM property WHERE property.name = pair.property AND property.personal)
                             THEN '***' ELSE left(pair.value, 1000) END
                   FROM unnest(correlation.property, waiting.value) WITH ORDINALITY AS pair (property, value, place)
                  WHERE pair.property IS NOT NULL AND pair.value IS NOT NULL
                  ORDER BY pair.place) AS value
      FROM instance_subscription AS waiting
      JOIN correlation ON correlation.id = waiting.correlation_id;
COMMENT ON VIEW shown_waiting IS 'by which values running instances wait, as everybody may see them: personal values and tokens are masked, and long ones cut';
