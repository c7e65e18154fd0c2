-- +goose Up

-- Written by package team. Whether the inviter acted in person or with a key that is as much, and not through an app or a narrower key.
ALTER TABLE team_invitations ADD COLUMN in_person BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE team_invitations SET in_person = TRUE;
