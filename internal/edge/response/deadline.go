package response

import (
	"net/http"
	"time"
)

// BodyTime is how long a request whose body nobody reads may take to send it. Without a
// bound net/http waits for the rest of it before it answers, for ever.
const BodyTime = 10 * time.Second

// Bound sets the deadlines of an answer of ours: nothing of the request's body is read,
// so what is not here within bodyTime ends the connection, and so does a visitor who reads
// nothing.
func Bound(w http.ResponseWriter, r *http.Request, bodyTime time.Duration) {
	Deadline(w, 0)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// Deadline gives an answer of size bytes a minute, and more at 16 KiB/s, so that a
// visitor who reads nothing holds nothing for long. It stands until the connection's
// next answer sets its own.
func Deadline(w http.ResponseWriter, size int64) {
	// Not every writer has deadlines (tests); those of servers do.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute + time.Duration(size>>14)*time.Second))
}
