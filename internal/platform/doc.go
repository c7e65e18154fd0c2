// Package platform owns no code. It is the district of what all others stand on and what could be
// published: database, jobs, blobs, sandbox, egress, fairness.
//
// Its rule: of sites and users it knows no more than their ids.
//
// Begin with db/db.go and job/job.go.
package platform
