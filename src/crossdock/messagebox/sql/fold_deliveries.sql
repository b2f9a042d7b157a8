-- Add up what settled batches delivered, per service.
WITH old AS (
    DELETE FROM delivery
    RETURNING service_id, count
)
INSERT INTO delivery_total AS total (service_id, count)
SELECT service_id, sum(count)
  FROM old
 GROUP BY service_id
    ON CONFLICT (service_id) DO UPDATE SET count = total.count + excluded.count;
