-- Whether some of these sources are published in part.
SELECT EXISTS (SELECT
                 FROM publication
                WHERE intake_sequence = ANY(%(sequence)s)
                  AND NOT EXISTS (SELECT
                                    FROM publication AS final
                                   WHERE final.intake_sequence = publication.intake_sequence AND final.last));
