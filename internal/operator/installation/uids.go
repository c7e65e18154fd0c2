package installation

// The users that an installation has below those that sites get.
const (
	ToolUID     = 199_999 // fetches Node and package managers
	ProbeUID    = 199_998 // tries the sandbox out
	DatabaseUID = 199_997 // makes the files of private database servers

	FirstDatabaseUID = 190_000 // of those that private database servers run under, an owner's each
	DatabaseUIDs     = 9_000
)
