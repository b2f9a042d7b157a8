-- Two-way locations whose host lacks labels that they give to a request: the response carries them as well, so whoever
-- waits at that host could never be given it.
SELECT location.name, host.name, lacking.labels
  FROM receive_location AS location
  JOIN host ON host.id = location.host_id
 CROSS JOIN LATERAL (SELECT array_agg(label ORDER BY label) AS labels
                       FROM json_array_elements_text(location.definition -> 'labels') AS label
                      WHERE label <> ALL (host.labels)) AS lacking
 WHERE location.deployed AND (location.definition ->> 'two_way')::boolean AND lacking.labels IS NOT NULL
 ORDER BY location.id;
