package drill

import (
	_ "embed" // codes.txtar
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/txtar"
)

// Code names a kind of finding. Codes do not change.
type Code string

// The codes, each with what explains it in codes.txtar.
const (
	OwnPods        Code = "own-pods"
	OwnNamespace   Code = "own-namespace"
	SystemPods     Code = "system-pods"
	NodePods       Code = "node-pods"
	Nodes          Code = "nodes"
	Leases         Code = "leases"
	Tokens         Code = "tokens"
	AccessReviews  Code = "access-reviews"
	APIServerStart Code = "api-server-start"
	ConditionError Code = "condition-error"

	MutualDependence      Code = "mutual-dependence"
	CertificateDependence Code = "certificate-dependence"

	SlowLeases     Code = "slow-leases"
	SlowRequests   Code = "slow-requests"
	NoSelector     Code = "no-selector"
	Wildcard       Code = "wildcard"
	OneReplica     Code = "one-replica"
	NoBudget       Code = "no-budget"
	OneNode        Code = "one-node"
	ServiceMissing Code = "service-missing"
	NoEndpoints    Code = "no-endpoints"
	WrongPort      Code = "wrong-port"
	CAExpires      Code = "ca-expires"
	CAInvalid      Code = "ca-invalid"
	CAMismatch     Code = "ca-mismatch"
	Conversion     Code = "conversion"
	ExtensionAPI   Code = "api-service"
	SideEffects    Code = "side-effects"

	NewPods Code = "new-pods"
	Order   Code = "order"
)

// lockoutCodes returns the codes of requests that a cluster needs, worst first.
func lockoutCodes() []Code {
	return []Code{OwnPods, OwnNamespace, SystemPods, NodePods, Nodes, Leases, Tokens, AccessReviews, APIServerStart}
}

// explanation explains a code to users.
type explanation struct {
	code     Code
	severity Severity
	// summary is on one line, and so is mend, in which NAMESPACE is that of the webhook. Meaning says why it matters.
	summary, meaning, mend string
}

//go:embed codes.txtar
var codesText []byte

// explanations returns those of all codes, in the order of codes.txtar.
var explanations = sync.OnceValue(func() (all []explanation) { //nolint:gochecknoglobals // a constant table
	for _, file := range txtar.Parse(codesText).Files {
		name, severity, _ := strings.Cut(file.Name, " ")
		parts := strings.SplitN(strings.TrimSpace(string(file.Data)), "\n\n", 3)
		all = append(all, explanation{Code(name), Severity(severity), parts[0], parts[1], strings.ReplaceAll(parts[2], "\n", " ")})
	}
	return all
})

// Codes returns all codes, in the order in which they are documented.
func Codes() []Code {
	var all []Code
	for _, e := range explanations() {
		all = append(all, e.code)
	}
	return all
}

// Summary returns what a code means on one line, and "" for what is no code.
func Summary(code Code) string { return find(code).summary }

// Explain returns what a code means and what to do. It is empty for what is no code.
func Explain(code Code) string {
	e := find(code)
	if e.code == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s): %s\n\n%s\n\nWhat to do:\n\n%s\n", e.code, e.severity, e.summary, e.meaning, e.mend)
}

func find(code Code) explanation {
	all := explanations()
	if i := slices.IndexFunc(all, func(e explanation) bool { return e.code == code }); i >= 0 {
		return all[i]
	}
	return explanation{}
}
