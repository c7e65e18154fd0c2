package deploy

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/account"
	"slipway/internal/db"
)

// Line is one line of a deployment's log.
type Line struct {
	N       int64 // from 1, without gaps
	At      db.Time
	Level   string // debug, info, warn, error
	Stage   string
	Message string // without terminal colors
	Raw     string // with them; empty when it has none
}

// logTopic wakes those who follow a deployment.
func logTopic(id ID) string { return "deployment/" + string(id) }

// Logs returns the lines after the given number, at most limit, and the deployment's
// status as of then: read before the lines, so that one that has ended has no more.
func (d *Deployments) Logs(ctx context.Context, owner account.OwnerID, id ID, after int64, limit int) ([]Line, Status, error) {
	x, err := d.owned(ctx, d.c.DB, owner, id)
	if err != nil {
		return nil, "", err
	}
	rows, err := d.c.DB.Query(ctx, `
		SELECT n, at, level, stage, message, raw FROM deployment_logs
		WHERE deployment_id = $1 AND n > $2 ORDER BY n LIMIT $3`, x.ID, after, limit)
	lines, err := db.Collect(rows, err, func(s db.Scanner) (l Line, err error) {
		return l, s.Scan(&l.N, &l.At, &l.Level, &l.Stage, &l.Message, &l.Raw)
	})
	if err != nil {
		return nil, "", fmt.Errorf("read log: %w", err)
	}
	return lines, x.Status, nil
}

// Listen returns a channel that receives when a deployment has more to say.
func (d *Deployments) Listen(id ID) (wake <-chan struct{}, stop func()) {
	return d.c.DB.Listen(logTopic(id))
}

// appendLines writes lines numbered from after+1.
func appendLines(ctx context.Context, tx *db.Tx, id ID, after int64, lines []Line) error {
	for len(lines) > 0 {
		batch := lines[:min(len(lines), 100)]
		lines = lines[len(batch):]
		var q strings.Builder
		q.WriteString(`INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES `)
		args := db.Args{id}
		for i, l := range batch {
			if i > 0 {
				q.WriteString(", ")
			}
			after++
			q.WriteString("($1, " + db.AddList(&args, []any{after, l.At, l.Level, l.Stage, l.Message, l.Raw}) + ")")
		}
		if _, err := tx.Exec(ctx, q.String(), args...); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
	}
	tx.Notify(logTopic(id))
	return nil
}
