-- +goose Up

-- Written by package team. The user who made the team, whose trials and coupons are the team's too; empty where that is not known.
ALTER TABLE teams ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
UPDATE teams SET created_by = COALESCE((
  SELECT m.user_id FROM team_members m WHERE m.owner_id = teams.owner_id AND m.invited_by = '' ORDER BY m.joined_at, m.user_id LIMIT 1), '');
CREATE INDEX teams_created_by ON teams (created_by);

-- Who made an owner: the person of a personal account, or the one who made the team.
CREATE VIEW owner_makers AS
  SELECT owner_id, id AS user_id FROM users
  UNION ALL
  SELECT owner_id, created_by FROM teams WHERE created_by <> '';

-- Invoices that are not paid yet.
CREATE VIEW open_invoices AS
  SELECT owner_id, due_at FROM billing_invoices WHERE status = 'open' AND NOT EXISTS (SELECT 1 FROM billing_off);
