-- Removed subscriptions that every router has heard of by now; one that has slept longer loads everything anew.
WITH forgotten AS (
    DELETE FROM subscription_removal
     WHERE epoch <= (SELECT epoch FROM box) - %(kept)s
    RETURNING epoch
)
UPDATE box
   SET removals_after = greatest(removals_after, (SELECT max(epoch) FROM forgotten))
 WHERE EXISTS (SELECT FROM forgotten);
