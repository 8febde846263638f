// Package configuration keeps the active configuration of a server up to date. A Reconciler merges the documents of the
// directory with the custom resources of the cluster, resolves which versions can be active together, compiles the result,
// and activates it or keeps the previous one. Active is the result.
package configuration

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Active is the active configuration of a server, and logs and counts what becomes of each configuration that is read. One
// goroutine calls its methods; any goroutine may load the Snapshot.
type Active struct {
	Dir     string
	Log     *slog.Logger
	Metrics *telemetry.Telemetry
	// KnowTokens, if set, gets the access tokens of each configuration that becomes the active one. It must not keep them.
	KnowTokens func([]authn.Token)
	// Activated, if set, gets each configuration before it is the active one, with its access tokens. It
	// must not keep them.
	Activated func(*config.Config)

	// Problems are what lasts and needs a person.
	Problems Problems
	Seed     maphash.Seed
	Snapshot atomic.Pointer[webhooks.Snapshot]
	// Config is the source of the snapshot, if there are custom resources: others are checked
	// against it.
	Config atomic.Pointer[config.Config]
	// problem is the problem that was logged and lasts, "" without one.
	problem string
	// logged are the diagnostics of active custom resources that were logged.
	logged map[string]bool
	// complete is false if a part of it does not compile.
	complete bool
	// policies is the number of active policies.
	policies int
	// filled are the files with documents, and emptied those that have lost all documents
	// that they had in an earlier configuration.
	filled, emptied []string
	// tokens and grants are its access tokens and Grants, authn is the Set with all of them, and
	// revocations are those of later configurations.
	tokens      []accessToken
	grants      []authn.Grant
	authn       *authn.Set
	revocations []authn.Revocation
}

// accessToken is an access token and the file that its document was in.
type accessToken struct {
	// id is the Set's own string.
	id string
	// sum identifies the hash of the token: another token may have its id by now.
	sum  uint64
	file *string
}

// activate makes a configuration the active one, and drops the documents of access tokens.
func (u *Active) activate(of *resolve.Resolution) {
	c, s := of.Config, of.Snapshot
	if u.Activated != nil {
		u.Activated(c)
	}
	u.Snapshot.Store(s)
	found := of.Diagnostics()
	if of.Clustered {
		kept := *c
		kept.Policy.Previous, kept.Mutation.Previous = nil, nil // they would keep Sets in memory
		kept.Policy.FollowsParams = false                       // a binding that is applied is checked by itself
		u.Config.Store(&kept)
		u.Metrics.CustomResources(counts(of))
	}
	broken := found.Err()
	u.complete = broken == nil
	u.Metrics.ConfigLoaded(c.Digest, time.Now(), u.complete)
	u.Metrics.PoliciesLoaded(&c.Policy, &c.Mutation)
	u.Metrics.AuthenticationLoaded(&c.Authn)
	u.Metrics.GrantsLoaded(s.Authn)
	policies := len(c.Policy.Policies) + len(c.Policy.AdmissionPolicies) + len(c.Mutation.Policies)
	// Logged when a new configuration decides from now on, with what it holds.
	u.Log.Info("configuration activated", "dir", u.Dir, "digest", c.Digest, "files", c.Files,
		"profiles", len(c.Sidecar.Profiles), "policies", policies, "tokens", len(c.Authn.Tokens), "grants", len(c.Authn.Grants),
		"issuers", len(c.Authn.Issuers), "directories", len(c.Authn.Directories))
	if u.policies > 0 && policies == 0 {
		// Logged when a change of the configuration removes the last policy.
		u.Log.Warn("the configuration has no policies any more: no request is denied or changed by a policy", "dir", u.Dir, "before", u.policies)
	}
	u.policies = policies
	u.tokens, u.grants, u.authn, u.revocations = u.accessTokensOf(c, s.Authn), c.Authn.Grants, s.Authn, nil
	if u.KnowTokens != nil {
		u.KnowTokens(c.Authn.Tokens)
	}
	u.emptied, u.filled = u.emptiedBy(c), c.Filled
	u.Metrics.ConfigEmptiedFiles(len(u.emptied))
	logged := make(map[string]bool, len(u.logged))
	for _, w := range limitPerResource(slices.Concat(c.Warnings, emptiedFiles(diagnostic.Warning, u.emptied), found)) {
		text := w.String()
		// When one custom resource changes, the diagnostics of the others are not logged again.
		if logged[text] = of.Clustered; !u.logged[text] {
			logDiagnostic(u.Log, w)
		}
	}
	u.logged = logged
	switch {
	case broken != nil:
		u.warn(u.Log.Error, describeErrors(found), broken)
	case len(u.emptied) > 0:
		u.warn(u.Log.Warn, "files have lost all their documents, which do not apply any more", errors.New(u.emptied[0]))
	default:
		u.problem = ""
	}
	// The Set has copies of the tokens, of which there may be a hundred thousand.
	c.Authn.Tokens, c.Policy.Previous, c.Mutation.Previous = nil, nil, nil
}

// maxPerResource bounds the logged diagnostics of one custom resource: its author must not
// fill the log. An exception has at most 21.
const maxPerResource = 25

// limitPerResource returns the diagnostics with at most maxPerResource of each custom resource: its conditions count the others.
// Those of documents are all kept: their author reads the log.
func limitPerResource(found diagnostic.List) diagnostic.List {
	counts := map[string]int{}
	return slices.DeleteFunc(slices.Clone(found), func(f diagnostic.Diagnostic) bool {
		if f.Source == config.ClusterSource {
			counts[f.Object]++
		}
		return counts[f.Object] > maxPerResource && f.Source == config.ClusterSource
	})
}

// limitGarbage has garbage collected often while a configuration is compiled: much garbage
// would leave a fragmented heap. setGCPercent ends that.
func limitGarbage() {
	const percent = 25
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// setGCPercent sets how much garbage is allowed before a collection, unless GOGC does. With
// few policies the live heap is a few megabytes, and at Go's default of 100 a collection is
// due every hundred reviews; some megabytes more of garbage save a tenth of the processor
// time of a review. A larger heap gets a smaller percentage.
func setGCPercent() {
	const (
		garbage     = 16 << 20 // bytes
		most, least = 300, 50  // percent of what is alive
	)
	if os.Getenv("GOGC") != "" {
		return
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	debug.SetGCPercent(int(min(max(100*garbage/max(memory.HeapAlloc, 1), least), most)))
}

// keepActive keeps the active configuration because a new one is invalid. Access tokens that
// the new one removes or revokes end all the same.
func (u *Active) keepActive(c *config.Config, err error) {
	if removed := u.withdraw(c); removed > 0 || len(c.Authn.Revocations) > 0 {
		// Logged when a configuration with errors withdraws access tokens or Grants, which must not wait until the errors are mended.
		u.Log.Info("configuration rejected, but access tokens and Grants that it removes or revokes are invalid now",
			"dir", u.Dir, "removed", removed, "revocations", len(c.Authn.Revocations))
	}
	serves := "the previous one stays active"
	if !u.complete {
		serves = "the previous one, which has errors, stays active"
	}
	u.problem = "" // each attempt is logged
	u.warn(u.Log.Error, "configuration rejected; "+serves, err)
	logDiagnostics(u.Log, err)
	u.Metrics.ConfigFailed() // behind the lines that say why
}

// withdraw ends the access tokens whose documents are gone or that are revoked, and Grants that
// are gone or give less, even if the rest of the configuration is invalid or its lookups take
// time: revoking must not depend on the repair of other documents. A document is gone only if
// its file was read completely without it, or is gone itself. withdraw returns the number of
// tokens and Grants that are gone.
func (u *Active) withdraw(c *config.Config) int {
	if u.authn == nil {
		return 0
	}
	left := make(map[string]uint64, len(c.Authn.Tokens))
	for i := range c.Authn.Tokens {
		left[c.Authn.Tokens[i].Name] = u.sum(&c.Authn.Tokens[i])
	}
	var gone []string
	for _, token := range u.tokens {
		if sum, is := left[token.id]; (!is || sum != token.sum) && !c.Unread.MayHold(*token.file) {
			gone = append(gone, token.id)
		}
	}
	for _, r := range c.Authn.Revocations {
		if !slices.ContainsFunc(u.revocations, func(known authn.Revocation) bool {
			before := known.Spec.IssuedBefore
			known.Spec.IssuedBefore = r.Spec.IssuedBefore
			return known.Spec == r.Spec && before.Equal(&r.Spec.IssuedBefore)
		}) {
			u.revocations = append(u.revocations, r)
		}
	}
	// From the compiled Set, so that a document that is back counts again.
	next := *u.Snapshot.Load()
	ended := u.endedGrants(c)
	next.Authn = u.authn.Withdraw(gone, ended, u.revocations)
	u.Snapshot.Store(&next)
	return len(gone) + len(ended)
}

// endedGrants returns the names of active Grants that are gone in a new configuration, or give less there.
func (u *Active) endedGrants(c *config.Config) (names []string) {
	left := make(map[string]*authn.Grant, len(c.Authn.Grants))
	for i := range c.Authn.Grants {
		left[c.Authn.Grants[i].Name] = &c.Authn.Grants[i]
	}
	for i := range u.grants {
		before := &u.grants[i]
		file, _, _ := strings.Cut(before.Source, "#")
		if now := left[before.Name]; (now == nil || !now.Covers(before)) && !c.Unread.MayHold(file) {
			names = append(names, before.Name)
		}
	}
	return names
}

// accessTokensOf returns the access tokens of a compiled configuration.
func (u *Active) accessTokensOf(c *config.Config, set *authn.Set) []accessToken {
	tokens := make([]accessToken, 0, len(c.Authn.Tokens))
	files := map[string]*string{} // each path is stored once
	for i := range c.Authn.Tokens {
		token := &c.Authn.Tokens[i]
		name, _, _ := strings.Cut(token.Source, "#")
		file := files[name]
		if file == nil {
			file = new(strings.Clone(name))
			files[*file] = file
		}
		if id, known := set.KnownID(token.Name); known {
			tokens = append(tokens, accessToken{id, u.sum(token), file})
		}
	}
	return tokens
}

// sum returns a short identification of the hash of a token.
func (u *Active) sum(token *authn.Token) uint64 { return maphash.String(u.Seed, token.Spec.SHA256) }

// warn logs a problem, unless it was logged and lasts.
func (u *Active) warn(write func(string, ...any), message string, err error) {
	n, first := countErrors(err)
	if u.problem != message+first {
		write(message, "dir", u.Dir, "errors", n, "first", first)
	}
	u.problem = message + first
}

// emptiedBy returns the files of a configuration that have lost all their documents: they
// had some in the active configuration, or were reported as emptied by it. A deleted file is
// not among them, since deleting a file removes its documents on purpose.
func (u *Active) emptiedBy(c *config.Config) []string {
	var emptied []string
	for _, file := range c.Empty {
		if _, had := slices.BinarySearch(u.filled, file); had || slices.Contains(u.emptied, file) {
			emptied = append(emptied, file)
		}
	}
	return emptied
}

// emptiedFiles returns a diagnostic for each file that has lost its documents.
func emptiedFiles(severity diagnostic.Severity, files []string) diagnostic.List {
	var list diagnostic.List
	for _, file := range files {
		list = append(list, diagnostic.Diagnostic{
			Severity: severity, Source: file, Message: "has lost all its documents",
			Hint: "restore the documents; to remove them, delete the file",
		})
	}
	return list
}

// describeErrors returns the effect of the errors of an active configuration.
func describeErrors(found diagnostic.List) string {
	if slices.ContainsFunc(found, func(f diagnostic.Diagnostic) bool {
		return f.Severity == diagnostic.Error && f.Source == config.ClusterSource
	}) {
		return "custom resources have errors: their last version without errors stays active; without one, a policy's failurePolicy decides (hint: kubectl get gatehouse)"
	}
	return "expressions do not compile: the failurePolicy of such a policy decides for matching requests; such an exception exempts nothing"
}

// countErrors returns the number of errors and the first one.
func countErrors(err error) (n int, first string) {
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok {
		return 1, err.Error()
	}
	for _, f := range list {
		if f.Severity == diagnostic.Error {
			if n++; n == 1 {
				first = f.Redacted().String()
			}
		}
	}
	return n, first
}
