-- +goose Up

-- Written by package traffic: what the visitors of an owner's sites were sent in a calendar
-- month, UTC. It outlives the sites.
CREATE TABLE bandwidth (
  owner_id TEXT NOT NULL,
  month    BIGINT NOT NULL,    -- 202611 is November 2026
  bytes    BIGINT NOT NULL,
  paused   BOOLEAN NOT NULL,   -- whether it is over the owner's limit
  PRIMARY KEY (owner_id, month)
);

-- The edge's contract: the sites that are paused for a month because their owner's bandwidth
-- is used up.
CREATE VIEW paused_sites AS
  SELECT s.id AS site_id, b.month AS month
  FROM bandwidth b JOIN sites s ON s.owner_id = b.owner_id
  WHERE b.paused AND s.deleted_at = 0;
