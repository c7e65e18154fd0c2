-- +goose Up

-- Written by package notify: a channel tells of several sites; their ids stand between spaces.
ALTER TABLE notify_channels RENAME COLUMN site_id TO site_ids;
