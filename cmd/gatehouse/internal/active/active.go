// Package active keeps the configuration by which a server answers: documents and custom resources are merged, resolved, compiled,
// activated and reported.
package active

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Active is the configuration by which a server answers. It tells log and metrics
// what becomes of each that is read, and reminds of one that is not all in use for
// as long as that lasts. Configurations come one after the other; the snapshot may
// be loaded at any time.
type Active struct {
	Dir     string
	Log     *slog.Logger
	Metrics *telemetry.Telemetry
	// Usage is told which access tokens there are.
	Usage TokenUsage

	Seed     maphash.Seed
	Snapshot atomic.Pointer[webhooks.Snapshot]
	// Config is what the snapshot was compiled from, if there are custom resources: it
	// holds what others are checked against.
	Config   atomic.Pointer[config.Config]
	Reminder telemetry.Reminder
	// reminds is what it reminds of.
	reminds string
	// told are the findings about custom resources in use that the log has.
	told map[string]bool
	// whole is false if there is something in it that does not compile.
	whole bool
	// policies is how many there are.
	policies int
	// filled are the files with documents, and emptied those without any that held
	// some in a configuration before.
	filled  config.FileSet
	emptied []string
	// tokens are the access tokens in it, authn what decides by all of them, and
	// revocations what configurations after it have said.
	tokens      []issued
	authn       *authn.Set
	revocations []authn.Revocation
}

// issued is an access token and the file that its document was in.
type issued struct {
	// id is the Set's own text.
	id string
	// sum stands for the hash of the token: another token may have got its id.
	sum  uint64
	file *string
}

// activate answers by this configuration from now on, and takes the documents of access tokens out of it.
func (u *Active) activate(of *Resolution) {
	c, s := of.config, of.snapshot
	u.Snapshot.Store(s)
	found := of.diagnostics()
	if of.clustered {
		kept := *c
		kept.Policy.Previous = nil // a whole Set
		u.Config.Store(&kept)
		u.Metrics.CustomResources(of.counts())
	}
	broken := found.Err()
	u.whole = broken == nil
	u.Metrics.ConfigLoaded(c.Digest, time.Now(), u.whole)
	u.Metrics.PoliciesLoaded(&c.Policy)
	u.Metrics.AuthenticationLoaded(&c.Authn)
	policies := len(c.Policy.Policies) + len(c.Policy.AdmissionPolicies)
	u.Log.Info("configuration in use", "dir", u.Dir, "digest", c.Digest, "files", c.Files,
		"profiles", len(c.Sidecar.Profiles), "policies", policies, "tokens", len(c.Authn.Tokens),
		"issuers", len(c.Authn.Issuers), "directories", len(c.Authn.Directories))
	if u.policies > 0 && policies == 0 {
		u.Log.Warn("the configuration has no policy any more: nothing is refused by one", "dir", u.Dir, "before", u.policies)
	}
	u.policies = policies
	u.tokens, u.authn, u.revocations = u.issuedIn(c, s.Authn), s.Authn, nil
	for _, one := range u.Usage {
		one.Know(c.Authn.Tokens)
	}
	u.emptied, u.filled = u.emptiedBy(c), c.Filled
	u.Metrics.ConfigEmptiedFiles(len(u.emptied))
	told := make(map[string]bool, len(u.told))
	for _, w := range fewOfEach(slices.Concat(c.Warnings, emptiedFiles(diagnostic.Warning, u.emptied), found)) {
		text := w.String()
		// One resource changes, and everything that is said of all others was said.
		if told[text] = of.clustered; !u.told[text] {
			logFinding(u.Log, w)
		}
	}
	u.told = told
	switch {
	case broken != nil:
		n, first := errorsIn(broken)
		u.notify(u.Log.Error, notUsable(found), "errors", n, first)
	case len(u.emptied) > 0:
		u.notify(u.Log.Warn, "files have lost all their documents, which are not in force any more", "files", len(u.emptied), u.emptied[0])
	default:
		u.Reminder.Stop()
		u.reminds = ""
	}
	// What was compiled holds copies, and there may be a hundred thousand. The Set
	// before is not needed any more.
	c.Authn.Tokens, c.Policy.Previous = nil, nil
	debug.FreeOSMemory() // Compiling leaves many times of what it makes.
}

// mostOfOne is how many findings of one custom resource are logged. Somebody who may
// write one and not read the log must not fill it. An exception has no more than
// 20, and one that says how many there are beside them.
const mostOfOne = 25

// fewOfEach are the findings with at most so many of each custom resource, and how
// many more it has. Those of documents are all told: their author reads the log.
func fewOfEach(found diagnostic.List) diagnostic.List {
	few := make(diagnostic.List, 0, len(found))
	counts := map[string]int{}
	severest := map[string]diagnostic.Severity{}
	for _, f := range found {
		if f.Source == config.ClusterSource {
			if counts[f.Object]++; counts[f.Object] > mostOfOne {
				if severest[f.Object] != diagnostic.Error {
					severest[f.Object] = f.Severity
				}
				continue
			}
		}
		few = append(few, f)
	}
	for _, object := range slices.Sorted(maps.Keys(severest)) {
		few = append(few, diagnostic.Diagnostic{
			Severity: severest[object], Source: config.ClusterSource, Object: object,
			Message: "and " + diagnostic.Count(counts[object]-mostOfOne, "finding") + " more", Hint: "the conditions of the object say the same",
		})
	}
	return few
}

// compiling keeps the garbage of compiling few, of which there is much and whose
// room would be left behind in fragments. Pace ends it.
func compiling() {
	const percent = 25
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// pace sets how much garbage there may be before it is collected, unless the
// operator has. With few policies the live heap is a few megabytes, so that at Go's
// default of 100 a collection is due every hundred reviews; some megabytes more of
// garbage cost a tenth less processor time a review. The larger the live heap is, the
// smaller a part of it is room enough: a thousand policies, or a hundred thousand
// access tokens, take little more than what they are.
func pace() {
	const (
		room        = 16 << 20 // bytes
		most, least = 150, 50  // percent of what is alive
	)
	if os.Getenv("GOGC") != "" {
		return
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	debug.SetGCPercent(int(min(max(100*room/max(memory.HeapAlloc, 1), least), most)))
}

// keep answers by the same configuration as before, because another one cannot be
// used; but what that one ends, ends.
func (u *Active) keep(c *config.Config, err error) {
	if removed := u.withdraw(c); removed > 0 || len(c.Authn.Revocations) > 0 {
		u.Log.Info("access tokens and revocations were taken over from a configuration that is not used otherwise",
			"dir", u.Dir, "removed", removed, "revocations", len(c.Authn.Revocations))
	}
	serves := "the last good one serves on"
	if !u.whole {
		serves = "the one before, of which not everything compiles, serves on"
	}
	u.reminds = "" // each attempt is told of
	n, first := errorsIn(err)
	u.notify(u.Log.Error, "configuration not used; "+serves, "errors", n, first)
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		err = fewOfEach(list)
	}
	logFindings(u.Log, err)
	u.Metrics.ConfigFailed() // behind the lines that say why
}

// withdraw ends the access tokens whose documents are gone, and what revocations
// end, whatever becomes of the rest of a configuration that was read: somebody has
// revoked them, and must not have to mend other people's documents first, or wait
// for services. What was not read is taken to be there still: a document is gone only
// if its file was read in whole without it, or is gone itself. It returns how many
// access tokens are gone.
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
			return known.Spec.User == r.Spec.User && known.Spec.IssuedBefore.Equal(&r.Spec.IssuedBefore)
		}) {
			u.revocations = append(u.revocations, r)
		}
	}
	// From what was compiled, so that a document that is back counts again.
	next := *u.Snapshot.Load()
	next.Authn = u.authn.Withdraw(gone, u.revocations)
	u.Snapshot.Store(&next)
	return len(gone)
}

// issuedIn are the access tokens of a configuration that was compiled.
func (u *Active) issuedIn(c *config.Config, set *authn.Set) []issued {
	tokens := make([]issued, 0, len(c.Authn.Tokens))
	files := map[string]*string{} // The text of a path is kept once.
	for i := range c.Authn.Tokens {
		token := &c.Authn.Tokens[i]
		name, _, _ := strings.Cut(token.Source, "#")
		file := files[name]
		if file == nil {
			file = new(strings.Clone(name))
			files[*file] = file
		}
		if id, known := set.KnownID(token.Name); known {
			tokens = append(tokens, issued{id, u.sum(token), file})
		}
	}
	return tokens
}

// sum stands for the hash of a token, and takes less room.
func (u *Active) sum(token *authn.Token) uint64 { return maphash.String(u.Seed, token.Spec.SHA256) }

// notify logs what is wrong, at once and again for as long as it lasts. What it reminds
// of already, it does not begin with anew. There are n of what counts names, and this
// is the first.
func (u *Active) notify(write func(string, ...any), message, counts string, n int, first string) {
	since := time.Now()
	if u.reminds == message+first {
		return
	}
	u.reminds = message + first
	write(message, "dir", u.Dir)
	u.Reminder.Remind(func() {
		write("still: "+message, "dir", u.Dir, "since", since, counts, n, "first", first)
	})
}

// emptiedBy returns the files that a configuration finds without documents, and that
// held some in the one in use or were found so then already. A file that was deleted
// is none of them: whoever deletes it means to remove what is in it.
func (u *Active) emptiedBy(c *config.Config) []string {
	var emptied []string
	for _, file := range c.Empty {
		if u.filled.Has(file) || slices.Contains(u.emptied, file) {
			emptied = append(emptied, file)
		}
	}
	return emptied
}

// emptiedFiles returns a finding about each file that has lost its documents.
func emptiedFiles(severity diagnostic.Severity, files []string) diagnostic.List {
	var list diagnostic.List
	for _, file := range files {
		list = append(list, diagnostic.Diagnostic{
			Severity: severity, Source: file, Message: "holds no document any more, and held some before",
			Hint: "put the documents back; to remove them, delete the file",
		})
	}
	return list
}

// notUsable says what it means that there are errors in a configuration in use.
func notUsable(found diagnostic.List) string {
	const (
		policies   = "policies do not compile: for what they match, their failurePolicy decides"
		exceptions = "exceptions cannot be used: they let nothing pass"
		resources  = "custom resources have errors: the last version without errors is in use, or none, and of a policy its failurePolicy decides (hint: kubectl get gatehouse)"
	)
	var ofPolicies, ofExceptions bool
	for _, f := range found {
		if f.Severity == diagnostic.Error && f.Source == config.ClusterSource {
			return resources
		}
		if f.Severity == diagnostic.Error {
			ofException := strings.HasPrefix(f.Object, "PolicyException/")
			ofPolicies, ofExceptions = ofPolicies || !ofException, ofExceptions || ofException
		}
	}
	switch {
	case ofPolicies && ofExceptions:
		return policies + "; " + exceptions
	case ofExceptions:
		return exceptions
	default:
		return policies
	}
}

// errorsIn are how many errors there are, and the first.
func errorsIn(err error) (n int, first string) {
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

// TokenUsage is what notes when access tokens are used.
type TokenUsage []interface {
	// Know is told which tokens there are.
	Know([]authn.Token)
	// Note is told of a use. It waits for nobody.
	Note(id string, at time.Time)
	// Run keeps what was noted until the context is done.
	Run(context.Context)
}
