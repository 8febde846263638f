package version

// Reason says what is wrong with a definition.
type Reason string

// The values of Reason.
const (
	// Missing is of a definition that is not there.
	Missing Reason = "Missing"
	// Older is of a schema before that of this program, or of one that does not say.
	Older Reason = "Older"
	// Newer is of a schema behind that of this program.
	Newer Reason = "Newer"
	// NotEstablished is of a definition whose kind the API server does not serve.
	NotEstablished Reason = "NotEstablished"
	// NotServed is of a definition without the version of this program.
	NotServed Reason = "NotServed"
	// NotStructural is of a schema that the API server holds nothing to.
	NotStructural Reason = "NotStructural"
	// Deleted is of a definition that is on its way out.
	Deleted Reason = "Deleted"
)

// Problem is what is wrong with a definition in the cluster.
type Problem struct {
	Reason Reason
	// Text says what is wrong, and Remedy what to do about it, both for people.
	Text, Remedy string
}

// Message is the text with the remedy.
func (p Problem) Message() string { return p.Text + " (hint: " + p.Remedy + ")" }
