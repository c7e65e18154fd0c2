-- +goose Up

-- Written by package backup. Whether a backup was another owner's, and moved with a transferred site.
ALTER TABLE backups ADD COLUMN moved BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE backups SET moved = TRUE WHERE id IN (
  SELECT b.id FROM backups b JOIN audit a ON a.subject = b.site_id AND a.action = 'site.received' AND a.at >= b.created_at);
