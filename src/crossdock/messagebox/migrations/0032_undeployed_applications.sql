-- An application that was undeployed keeps its row: what it left behind, and what is counted, still names its artefacts.
ALTER TABLE application ADD COLUMN deployed boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN application.deployed IS 'false once it was undeployed: what it left is suspended, and is not resumed before it is deployed again';
