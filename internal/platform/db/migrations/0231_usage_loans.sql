-- +goose Up

-- Written by package usage: how much of an owner's bandwidth a node may still send or has sent, and is not in the owner's
-- usage yet.
CREATE TABLE usage_loans (
  owner_id    TEXT NOT NULL,
  node        TEXT NOT NULL,   -- a process
  outstanding BIGINT NOT NULL,
  until       BIGINT NOT NULL, -- when it counts no longer, unless the node is heard of again
  PRIMARY KEY (owner_id, node)
);

-- The edge's contract: owners who have so little bandwidth left in a month that their responses need loans.
CREATE VIEW capped_owners AS
  SELECT owner_id, month FROM usage_caps WHERE armed AND meter = 'bandwidth.bytes';
