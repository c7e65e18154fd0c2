-- +goose Up

-- Written by package thumbnail, as before.
ALTER TABLE portraits RENAME TO thumbnails;
ALTER TABLE thumbnails RENAME COLUMN colour TO color;

-- Nodes of the version before read and write it under its former name while a rolling upgrade
-- lasts: PostgreSQL passes what they do through. SQLite has one node.
CREATE VIEW portraits AS
SELECT release, title, text, color AS colour, icon, image, made_at FROM thumbnails;
