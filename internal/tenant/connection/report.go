package connection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
)

// Facts is the current state of a deployment, as reported to Git providers.
type Facts struct {
	Deployment id.Deployment
	Site       id.Site
	SiteName   string
	Slug       string
	Repository string // host/owner/repo
	Branch     string
	Commit     string
	Pull       int
	Status     string // pending, building, deploying, success, failed, canceled
	Error      string // one line; empty if none
	Production bool
	URL        string // URL of the site or preview
	LogURL     string // URL of the deployment's page in the dashboard
	UpdatedAt  db.Time
}

// path returns the repository without its host.
func (f Facts) path() string {
	_, path, _ := strings.Cut(f.Repository, "/")
	return path
}

// environment returns the provider's name for the deployment's target.
func (f Facts) environment() string {
	if f.Production {
		return "Production – " + f.Slug
	}
	return "Preview – " + f.Slug
}

// says describes the status in one line.
func (f Facts) says() string {
	switch f.Status {
	case "pending":
		return "Queued"
	case "success":
		return "Deployed"
	case "failed":
		return text.Line("Failed: "+f.Error, 140)
	case "canceled":
		return text.Line("Canceled: "+f.Error, 140)
	}
	return "Building"
}

// link returns the deployed page after a success, otherwise the log.
func (f Facts) link() string {
	if f.Status == "success" {
		return f.URL
	}
	return f.LogURL
}

// Report is the job that reports one state of a deployment. It may run twice: it sends the state at the time it runs,
// and creates each object at the provider only once, unless a response was lost.
type Report struct {
	Deployment id.Deployment
	State      string
}

// Kind implements [job.Args].
func (Report) Kind() string { return "connection.report" }

// QueueName is the queue of reports. It is separate so that a slow provider delays no other jobs.
const QueueName = "report"

// schedule equals that of webhooks: ten attempts within 75 h 35 min.
var schedule = []time.Duration{
	5 * time.Second,
	5 * time.Minute,
	30 * time.Minute,
	2 * time.Hour,
	5 * time.Hour,
	10 * time.Hour,
	14 * time.Hour,
	20 * time.Hour,
	24 * time.Hour,
}

func (s *Connections) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 2 * time.Minute, Attempts: len(schedule) + 1, Backoff: func(failures int) time.Duration {
		return job.Jitter(schedule[min(failures, len(schedule))-1])
	}, GivenUp: func(context.Context, []byte, error) error { return nil }}, s.report) // the error is stored with the connection
	job.Handle(j, job.Policy{Timeout: time.Minute, Attempts: 8, Backoff: func(failures int) time.Duration {
		return job.Jitter(min(10*time.Second<<min(failures-1, 20), time.Hour))
	}, GivenUp: func(context.Context, []byte, error) error { return nil }}, s.revoke)
}

// ReportTx enqueues a report of a deployment's state if the site's connection reports. owner is the deployment's owner.
func (s *Connections) ReportTx(ctx context.Context, tx *db.Tx, site id.Site, deployment id.Deployment, state string, owner id.Owner) error {
	u, err := s.UseOf(ctx, tx, site)
	if err != nil || u.Connection == "" || !u.Report || s.deployments == nil {
		return err
	}
	if state == "deploying" {
		state = "building"
	}
	r := Report{deployment, state}
	_, err = job.Enqueue(ctx, tx, r, job.Options{
		Queue:  QueueName,
		Unique: "report/" + string(deployment) + "/" + state,
		Group:  "report/" + string(deployment),
		Share:  string(owner),
	})
	return err
}

func (s *Connections) report(ctx context.Context, r Report, _ int64) error {
	f, err := s.deployments.Facts(ctx, r.Deployment)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	u, err := s.UseOf(ctx, s.c.DB, f.Site)
	if err != nil || u.Connection == "" || !u.Report {
		return err
	}
	c, err := s.ofSite(ctx, f.Site)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	host, _, _ := strings.Cut(f.Repository, "/")
	if f.Commit == "" || host != c.Host {
		return nil // reported once the commit is known
	}
	a, err := s.reporter(ctx, c, f.Repository)
	if err == nil {
		err = s.tell(ctx, a, f)
	}
	if isStatus(err, http.StatusUnauthorized) && c.ByGitHubApp() {
		s.installations.forget(c.ID)
	}
	if noted := s.note(ctx, c.ID, err); noted != nil {
		return noted
	}
	var no *refusal
	switch {
	case fault.As(err) != nil && fault.As(err).Kind != fault.Unavailable:
		return nil // a retry wouldn't help; the error is stored with the connection
	case errors.As(err, &no) && no.lasting():
		return nil
	case errors.As(err, &no) && no.after > 0:
		return job.Later(no.after)
	}
	return err
}

// reporter returns the client that posts deployment statuses to the Git provider.
func (s *Connections) reporter(ctx context.Context, c Connection, repository string) (api, error) {
	if c.ByGitHubApp() {
		token, err := s.reportToken(ctx, c, repository)
		if err != nil {
			return nil, err
		}
		return installed{s.api(c.Provider, c.Host, secret{Token: token}).(github)}, nil
	}
	k, err := s.fresh(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.api(c.Provider, c.Host, k), nil
}

// tell sends the changes since the last report of a deployment.
func (s *Connections) tell(ctx context.Context, a api, f Facts) error {
	var told, record, check string
	err := s.c.DB.QueryRow(ctx, `SELECT state, record, check_id FROM forge_reports WHERE deployment_id = $1`, f.Deployment).Scan(
		&told, &record, &check,
	)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read report: %w", err)
	}
	if told == f.Status {
		return nil
	}
	run, err := a.status(ctx, f, check)
	if err != nil {
		return err
	}
	if run != check { // stored at once, since later requests may fail
		if err := s.noteReport(ctx, f, told, record, run); err != nil {
			return err
		}
	}
	made, err := a.record(ctx, f, record)
	if err != nil {
		return err
	}
	if made != record {
		if err := s.noteReport(ctx, f, told, made, run); err != nil {
			return err
		}
	}
	if f.Pull > 0 {
		if err := s.comment(ctx, a, f); err != nil {
			return err
		}
	}
	return s.noteReport(ctx, f, f.Status, made, run)
}

// keepReports caps the deployments per site whose reports are remembered.
const keepReports = 200

func (s *Connections) noteReport(ctx context.Context, f Facts, state, record, check string) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO forge_reports (deployment_id, site_id, state, record, check_id, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (deployment_id) DO UPDATE SET state = excluded.state, record = excluded.record, check_id = excluded.check_id,
			updated_at = excluded.updated_at`, f.Deployment, f.Site, state,
			text.Line(record, 100), text.Line(check, 100), db.Now())
		if err != nil {
			return fmt.Errorf("note report: %w", err)
		}
		_, err = tx.Exec(ctx, `
			DELETE FROM forge_reports WHERE site_id = $1 AND deployment_id < (
				SELECT MIN(deployment_id) FROM (SELECT deployment_id FROM forge_reports WHERE site_id = $1
				ORDER BY deployment_id DESC LIMIT $2) AS kept)`, f.Site, keepReports)
		return err
	})
}

// comment updates the comment on the pull request, or creates it again if it was deleted.
func (s *Connections) comment(ctx context.Context, a api, f Facts) error {
	var id string
	err := s.c.DB.QueryRow(ctx, `SELECT comment_id FROM forge_comments WHERE site_id = $1 AND pull = $2`, f.Site, f.Pull).Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read comment: %w", err)
	}
	says := f.comment()
	made, err := a.comment(ctx, f, id, says)
	if id != "" && isStatus(err, 404) {
		made, err = a.comment(ctx, f, "", says)
	}
	if err != nil || made == id {
		return err
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`INSERT INTO forge_comments (site_id, pull, comment_id) VALUES ($1, $2, $3) ON CONFLICT (site_id, pull) DO UPDATE
				SET comment_id = excluded.comment_id`, f.Site, f.Pull, text.Line(made, 100),
		)
		return err
	})
}

// comment renders the comment. Users' text is escaped or quoted, so that it can't mention people or add links.
func (f Facts) comment() string {
	plain := func(s string) string {
		return strings.NewReplacer(
			"|", "\\|", "`", "'", "@", "@\u200b", "<", "&lt;", ">", "&gt;", "[", "\\[", "]", "\\]", "*", "\\*", "_",
			"\\_",
		).Replace(text.Line(s, 300))
	}
	status := map[string]string{"pending": "Queued", "success": "Ready", "failed": "Failed", "canceled": "Canceled"}[f.Status]
	if status == "" {
		status = "Building"
	}
	if f.Error != "" && f.Status != "success" {
		status += ": " + plain(f.Error)
	}
	preview := "–"
	if f.Status == "success" {
		preview = "[" + f.URL + "](" + f.URL + ")"
	}
	return fmt.Sprintf(
		"**%s** on Slipway\n\n| Commit | Status | Preview | Log |\n|---|---|---|---|\n| `%.12s` | %s | %s | [View log](%s) |\n\nUpdated %s\n",
		plain(f.SiteName), f.Commit, status, preview, f.LogURL,
		f.UpdatedAt.Time().Format("2006-01-02 15:04:05 UTC"),
	)
}

// note stores the provider's last error for the connection's owner.
func (s *Connections) note(ctx context.Context, id ID, failed error) error {
	why, at := "", db.Time(0)
	if failed != nil {
		at = db.Now()
		var no *refusal
		if errors.As(failed, &no) {
			why = text.Line(fmt.Sprintf("%d %s", no.status, no.text), 300)
		} else if f := fault.As(failed); f != nil {
			why = text.Line(f.Message, 300)
		} else {
			why = "The Git provider couldn't be reached"
		}
		s.c.Log.WarnContext(ctx, "deployment not reported to its Git provider", "connection", id, "err", failed)
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx,
			`UPDATE connections SET error = $2, error_at = $3 WHERE id = $1 AND (error <> $2 OR error_at < $4)`, id,
			why, at, at.Add(-time.Minute))
		return err
	})
}
