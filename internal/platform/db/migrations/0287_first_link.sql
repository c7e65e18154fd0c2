-- +goose Up

-- Written by package account. The setup link for the first user, which every node prints until there is one.
CREATE TABLE first_links (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  sealed     TEXT NOT NULL, -- its token
  expires_at BIGINT NOT NULL
);
