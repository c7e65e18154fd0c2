// Package platform is the district of what all others build on and what could be published: database, jobs, blobs,
// sandbox, egress, fairness. It has no code of its own.
//
// Its rule: it knows sites and users only by their ids.
//
// Start with db/db.go and job/job.go.
package platform
