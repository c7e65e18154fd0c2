package buildlog

import (
	"strings"
	"testing"
)

// The output of a program that can't start leads to its cause and what to do.
func TestStartCause(t *testing.T) {
	t.Parallel()
	const wrote = " under [run] in slipway.toml, or set run.storage of the site"
	for _, c := range [][2]string{
		{"Error: EROFS: read-only file system, mkdir './data'", `It writes to data, and a release is read-only: add storage = ["data"]` + wrote},
		{"Error: ENOENT: no such file or directory, mkdir './data/x'", `It writes to data/x, and a release is read-only: add storage = ["data/x"]` + wrote},
		{"Error: EROFS: read-only file system, open '/app/web/data/db.json'", `It writes to data, and a release is read-only: add storage = ["data"]` + wrote},
		{"Error: EACCES: permission denied, mkdir '/build/repo/web/public/uploads'", `It writes to public/uploads, and a release is read-only: add storage = ["public/uploads"]` + wrote},
		{"OSError: [Errno 30] Read-only file system: '/app/web/logs/a.log'", `It writes to logs, and a release is read-only: add storage = ["logs"]` + wrote},
		{"mkdir: cannot create directory 'cache': Read-only file system", `It writes to cache, and a release is read-only: add storage = ["cache"]` + wrote},
		{"Error: EROFS: read-only file system, open '/app/web/db.json'", noFolder},
		{"Error: EACCES: permission denied, mkdir '/var/lib/app'", "It can't write to /var/lib/app, which is not its own"},
		{"SqliteError: attempt to write a readonly database", "It can't write its SQLite database"},
		{"Error: listen EACCES: permission denied 0.0.0.0:80", "It can't listen on 0.0.0.0:80: it must listen on the port"},
		{"Error: Cannot find module 'dotenv'\nRequire stack:\n- /app/server.js", "Package dotenv is not in the release"},
		{"Error: Cannot find module '/app/dist/main'", "File /app/dist/main is not in the release"},
		{"Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@s/a' imported from /app/x", "Package @s/a is not in the release"},
		{"PrismaClientInitializationError: error: Environment variable not found: DATABASE_URL.", "The environment variable DATABASE_URL is not set"},
		{"Error: JWT_SECRET is required", "The environment variable JWT_SECRET is not set"},
		{"Error: Missing required environment variable: STRIPE_KEY", "The environment variable STRIPE_KEY is not set"},
		{"throw new Error: The environment variable MONGODB is not defined", "The environment variable MONGODB is not set"},
		{"Error: connect ECONNREFUSED 127.0.0.1:5432", "It connects to PostgreSQL on its own machine, where nothing listens"},
		{"Error: connect ECONNREFUSED ::1:6379", "It connects to Redis on its own machine"},
		{"Error: getaddrinfo ENOTFOUND db.internal", "Host db.internal does not exist"},
		{"Error: @prisma/client did not initialize yet. Please run \"prisma generate\" and try", "Prisma's client was not generated"},
		{"sh: 1: tsx: not found", "Command tsx was not found"},
		{"Error: Could not find a production build in the '.next' directory. Try building", "There is no build in .next"},
		{"> app@1.0.0 start\nlistening\nTypeError: Cannot read properties of undefined (reading 'a')", "Its last error: TypeError: Cannot read properties of undefined (reading 'a')"},
		{"hello\nError: the first\nError: the second", "Its last error: Error: the second"},
		{"hello", ""},
		{"", ""},
		{"GET /environment 200 OK", ""},
	} {
		output, want := c[0], c[1]
		if got := StartCause(strings.Split(output, "\n"), "web"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s\n got %q\nwant %q", output, got, want)
		}
	}
}
