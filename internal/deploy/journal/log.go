package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// Line is one line of a deployment's log.
type Line struct {
	N       int64 // from 1, without gaps
	At      db.Time
	Level   string // debug, info, warn, error
	Stage   string
	Message string // without terminal colors
	Raw     string // with terminal colors; empty if it has none
}

// Topic returns the topic that is notified of a deployment's changes.
func Topic(deployment id.Deployment) string { return "deployment/" + string(deployment) }

// Read returns at most limit lines of a deployment's log after the given number.
func Read(ctx context.Context, r db.Reader, deployment id.Deployment, after int64, limit int) ([]Line, error) {
	rows, err := r.Query(ctx, `
		SELECT n, at, level, stage, message, raw FROM deployment_logs
		WHERE deployment_id = $1 AND n > $2 ORDER BY n LIMIT $3`, deployment, after, limit)
	lines, err := db.Collect(rows, err, func(s db.Scanner) (l Line, err error) {
		return l, s.Scan(&l.N, &l.At, &l.Level, &l.Stage, &l.Message, &l.Raw)
	})
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return lines, nil
}

// ForgetTx deletes the logs of deployments.
func ForgetTx[ID ~string](ctx context.Context, tx *db.Tx, deployments []ID) error {
	for batch := range slices.Chunk(deployments, 100) {
		var args db.Args
		if _, err := tx.Exec(ctx, `DELETE FROM deployment_logs WHERE deployment_id IN (`+db.AddList(&args,
			batch)+`)`, args...); err != nil {
			return fmt.Errorf("forget log: %w", err)
		}
	}
	return nil
}

// last returns the number of a log's last line.
func last(ctx context.Context, r db.Reader, deployment id.Deployment) (n int64, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MAX(n), 0) FROM deployment_logs WHERE deployment_id = $1`, deployment).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("find end of log: %w", err)
	}
	return n, nil
}

// AppendTx writes lines numbered from after+1.
func AppendTx(ctx context.Context, tx *db.Tx, deployment id.Deployment, after int64, lines []Line) error {
	for len(lines) > 0 {
		batch := lines[:min(len(lines), 100)]
		lines = lines[len(batch):]
		var q strings.Builder
		q.WriteString(`INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES `)
		args := db.Args{string(deployment)}
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
	tx.Notify(Topic(deployment))
	return nil
}
