-- +goose Up

-- Written by package placement: on which node a site's programs run. No row: on none yet. A node's lease, in nodes,
-- is that of all its sites.
CREATE TABLE placements (
  site_id TEXT PRIMARY KEY,
  node    TEXT NOT NULL,
  pinned  BOOLEAN NOT NULL,         -- its files or databases are there: no other node may take it
  since   BIGINT NOT NULL
);
CREATE INDEX placements_node ON placements (node);

-- Written by package job: which node alone may run it; empty: any.
ALTER TABLE jobs ADD COLUMN node TEXT NOT NULL DEFAULT '';

-- ended is when a node's lease ended, or it stopped.
DROP VIEW live_nodes;
CREATE VIEW live_nodes AS SELECT id, name, address, state, lease_until,
  CASE WHEN lease_until > 0 THEN lease_until ELSE seen_at END AS ended
  FROM nodes;
