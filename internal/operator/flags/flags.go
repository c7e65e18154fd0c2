// Package flags owns the flags that more than one program or command has: those of the service, of its data and of its mail
// server, and the file that can hold them. It runs nothing.
package flags

import "slipway/internal/operator/installation"

// Data holds the settings that every command that touches the data needs.
type Data struct {
	DataDir  string `help:"Data directory: database, blobs, work directories, certificates, encryption key." default:"./slipway-data" placeholder:"DIR"`
	Database string `help:"PostgreSQL URL (postgres://…). Default: SQLite in the data directory." placeholder:"URL"`
	Blobs    string `help:"Where files are stored: s3://BUCKET?endpoint=https://HOST, with credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a directory; the data directory when absent." placeholder:"URL"`
}

// Store returns where the data is.
func (d Data) Store() installation.Store {
	return installation.Store{DataDir: d.DataDir, Database: d.Database, Blobs: d.Blobs}
}
