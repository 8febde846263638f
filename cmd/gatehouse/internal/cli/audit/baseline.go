package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

// baselineKind is the kind of documents of a baseline.
const baselineKind = "PolicyBaseline"

// baselineFlags are the flags about a baseline.
type baselineFlags struct {
	path, expires, reason string
	add, prune            bool
}

// addTo adds the flags to the command.
func (f *baselineFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.path, "baseline", "", "file of PolicyBaselines: it is made if it does not exist, and otherwise says which violations are known")
	flags.StringVar(&f.expires, "expires", "", "end of the baseline, a day, which is its beginning in UTC, or a time: 2027-03-31 or 2027-03-31T18:00:00Z")
	flags.StringVar(&f.reason, "reason", "", "why the baseline allows these violations, for readers of the audit log")
	flags.BoolVar(&f.add, "add", false, "add violations to --baseline that it does not have")
	flags.BoolVar(&f.prune, "prune", false, "drop entries from --baseline whose violations no longer exist; nothing is added")
	_ = cmd.MarkFlagFilename("baseline", "yaml", "yml") // the flag exists
}

// check adds what is wrong with the flags. Filtered reports whether others leave out objects.
func (f *baselineFlags) check(errs *cli.Problems, filtered bool, now time.Time) {
	if f.path == "" {
		errs.Add(f.expires != "" || f.reason != "" || f.add || f.prune, "--expires, --reason, --add and --prune are for --baseline FILE")
		return
	}
	errs.Add(f.add && f.prune, "--add and --prune exclude each other (hint: prune first, and look at what is new before you add it)")
	errs.Add(f.prune && filtered, "--prune needs all objects, because it drops the entries of those that it does not find (hint: leave out --namespace and --kind)")
	ext := filepath.Ext(f.path)
	name := strings.TrimSuffix(filepath.Base(f.path), ext)
	errs.Add(ext != ".yaml" && ext != ".yml" || len(validation.IsDNS1123Subdomain(name)) > 0,
		"--baseline %q: must be a file such as baseline.yaml, whose name becomes that of the PolicyBaseline: lower-case letters, digits and dashes", cli.InertName(f.path))
	if f.expires != "" {
		at, err := parseExpiry(f.expires)
		errs.Add(err != nil, "--expires %q: must be a day or a time, such as 2027-03-31 or 2027-03-31T18:00:00Z", f.expires)
		errs.Add(err == nil && !at.After(now), "--expires %q has passed: the baseline would allow nothing", f.expires)
	}
	errs.Add(f.reason != "" && strings.TrimSpace(f.reason) == "", "--reason must say why the violations are allowed")
}

// parseExpiry returns the time that a value of --expires means.
func parseExpiry(text string) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}

// known is a file of PolicyBaselines. Its documents keep their entries, so that applying them one after the other never drops one for
// a moment.
type known struct {
	path string
	// exists reports whether there was such a file, and changed whether the expiry or reason is another one now.
	exists, changed bool
	documents       []*v1alpha1.PolicyBaseline
	entries         map[baseline.RuleName]map[baseline.Digest]*knownEntry
	// sizes are the numbers of entries of the documents.
	sizes []int
}

// knownEntry is an entry of a document, given by its index.
type knownEntry struct {
	baseline.Entry
	document int
	// added reports whether the entry is new, and seen whether its violation exists.
	added, seen bool
}

// open reads the file, or prepares a new one.
func (f *baselineFlags) open(now time.Time) (*known, error) {
	k := &known{path: f.path, entries: map[baseline.RuleName]map[baseline.Digest]*knownEntry{}}
	shown := cli.InertName(f.path)
	switch info, err := os.Stat(f.path); {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("--baseline %s: is a directory, and must be a file", shown)
	case err == nil:
		k.exists = true
		if err := k.read(); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("--baseline %s: cannot be read: %w", shown, cli.Cause(err))
	case f.prune || f.add:
		return nil, fmt.Errorf("--baseline %s: there is no such file (hint: without --prune and --add the file is made)", shown)
	case f.expires == "" || f.reason == "":
		return nil, fmt.Errorf("--baseline %s: there is no such file, and a new one needs --expires DATE and --reason TEXT", shown)
	default:
		if info, err := os.Stat(filepath.Dir(f.path)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--baseline %s: the directory does not exist (hint: mkdir -p %s)", shown, cli.InertName(filepath.Dir(f.path)))
		}
		k.append(newDocument(strings.TrimSuffix(filepath.Base(f.path), filepath.Ext(f.path))))
	}
	k.set(f)
	if err := k.refused(); err != nil {
		return nil, fmt.Errorf("--baseline %s: a server does not take this file (hint: gatehouse lint %s):\n%w", shown, shown, err)
	}
	if f.add && !k.expiry().After(now) {
		return nil, fmt.Errorf("--baseline %s: it expired at %s (hint: give it another end with --expires DATE)", shown, k.expiry().Format(time.RFC3339))
	}
	return k, nil
}

// read reads the file as strictly as a server does.
func (k *known) read() error {
	shown := cli.InertName(k.path)
	documents, found := config.Baselines(k.path)
	if err := found.Err(); err != nil {
		return fmt.Errorf("--baseline %s is no file of PolicyBaselines (hint: name a new file, which the command makes):\n%w", shown, err)
	}
	if len(documents) == 0 {
		return fmt.Errorf("--baseline %s: there is no PolicyBaseline in it (hint: name a new file, which the command makes)", shown)
	}
	for n := range documents {
		one := &documents[n]
		if one.Name == "" || one.Namespace == "" || slices.Contains(k.names(), config.ObjectName(one)) {
			return fmt.Errorf("--baseline %s: each PolicyBaseline needs a namespace, and a name of its own", shown)
		}
		at := k.append(one)
		for i := range one.Spec.Rules {
			r := &one.Spec.Rules[i]
			for _, text := range r.Entries {
				e, err := baseline.ParseEntry(text)
				if err != nil {
					return fmt.Errorf("--baseline %s: %w", shown, err)
				}
				k.insert(baseline.RuleName{Kind: r.Kind, Policy: r.Policy, Rule: r.Rule}, &knownEntry{Entry: e, document: at})
			}
		}
	}
	return nil
}

// refused returns why a server would not take the documents.
func (k *known) refused() error {
	var spec policy.Spec
	for _, d := range k.documents {
		b, problems := policy.NewBaseline(d)
		if len(problems) > 0 {
			return fmt.Errorf("%s: %s: %s", config.ObjectName(d), problems[0].Field, problems[0].Detail)
		}
		spec.Baselines = append(spec.Baselines, *b)
	}
	_, err := policy.Compile(spec)
	if all, is := errors.AsType[diagnostic.List](err); is { // the warnings are about policies, which are not here
		return slices.DeleteFunc(slices.Clone(all), func(d diagnostic.Diagnostic) bool { return d.Severity != diagnostic.Error }).Err()
	}
	return err
}

// newDocument returns a document without entries.
func newDocument(name string) *v1alpha1.PolicyBaseline {
	return &v1alpha1.PolicyBaseline{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: baselineKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: install.DefaultNamespace, Name: name},
	}
}

// append adds a document, and returns its index.
func (k *known) append(d *v1alpha1.PolicyBaseline) int {
	k.documents, k.sizes = append(k.documents, d), append(k.sizes, 0)
	return len(k.documents) - 1
}

// insert adds an entry, unless the rule has one of the same digest.
func (k *known) insert(id baseline.RuleName, e *knownEntry) {
	of := k.entries[id]
	if of == nil {
		of = map[baseline.Digest]*knownEntry{}
		k.entries[id] = of
	}
	if of[e.Digest] == nil {
		of[e.Digest] = e
		k.sizes[e.document]++
	}
}

// add adds a new entry to the first document that has space for it, or to another one.
func (k *known) add(id baseline.RuleName, e baseline.Entry) *knownEntry {
	at := slices.IndexFunc(k.sizes, func(n int) bool { return n < baseline.MaxEntries })
	if at < 0 {
		first := k.documents[0]
		next := newDocument("")
		next.Namespace, next.Spec.Reason, next.Spec.ExpiresAt = first.Namespace, first.Spec.Reason, first.Spec.ExpiresAt
		// Documents in between may have been deleted.
		for n := 2; next.Name == "" || slices.Contains(k.names(), config.ObjectName(next)); n++ {
			next.Name = fmt.Sprintf("%s-%d", first.Name, n)
		}
		at = k.append(next)
	}
	out := &knownEntry{Entry: baseline.Entry{Object: strings.Clone(e.Object), Digest: e.Digest}, document: at, added: true, seen: true}
	id = cloned(id)
	k.insert(id, out)
	return out
}

// cloned returns a name that shares no memory with the object whose violation has it.
func cloned(id baseline.RuleName) baseline.RuleName {
	return baseline.RuleName{Kind: strings.Clone(id.Kind), Policy: strings.Clone(id.Policy), Rule: strings.Clone(id.Rule)}
}

// set sets the expiry and the reason of all documents that the flags give.
func (k *known) set(f *baselineFlags) {
	for _, d := range k.documents {
		if at, err := parseExpiry(f.expires); err == nil && !d.Spec.ExpiresAt.Time.Equal(at) {
			d.Spec.ExpiresAt, k.changed = metav1.NewTime(at.UTC()), true
		}
		if f.reason != "" && d.Spec.Reason != f.reason {
			d.Spec.Reason, k.changed = f.reason, true
		}
	}
}

// expiry returns when the first of the documents expires.
func (k *known) expiry() time.Time {
	return slices.MinFunc(k.documents, func(a, b *v1alpha1.PolicyBaseline) int { return a.Spec.ExpiresAt.Compare(b.Spec.ExpiresAt.Time) }).Spec.ExpiresAt.UTC()
}

// title returns the name of a document.
func (k *known) title(document int) string { return config.ObjectName(k.documents[document]) }

// names returns the names of all documents.
func (k *known) names() []string {
	out := make([]string, len(k.documents))
	for i := range k.documents {
		out[i] = k.title(i)
	}
	return out
}

// writtenBaseline is a document as it is written, in an order for readers: what a rule is stands before its entries.
type writtenBaseline struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace     string
		Labels, Annotations map[string]string `yaml:",omitempty"`
	}
	Spec struct {
		Reason     string
		ExpiresAt  string                   `yaml:"expiresAt"`
		NotCovered []v1alpha1.UncoveredRule `yaml:"notCovered,omitempty"`
		Rules      []v1alpha1.BaselineRule  `yaml:",omitempty"`
	}
}

// encodeBaseline returns a document as YAML.
func encodeBaseline(d *v1alpha1.PolicyBaseline) (string, error) {
	w := writtenBaseline{APIVersion: v1alpha1.GroupVersion.String(), Kind: baselineKind}
	delete(d.Annotations, corev1.LastAppliedConfigAnnotation) // in a file that was read from a cluster, and as long as the document
	w.Metadata.Name, w.Metadata.Namespace, w.Metadata.Labels, w.Metadata.Annotations = d.Name, d.Namespace, d.Labels, d.Annotations
	w.Spec.Reason, w.Spec.ExpiresAt, w.Spec.NotCovered, w.Spec.Rules = d.Spec.Reason, d.Spec.ExpiresAt.UTC().Format(time.RFC3339), d.Spec.NotCovered, d.Spec.Rules
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	err := errors.Join(encoder.Encode(&w), encoder.Close())
	return out.String(), err
}

// has reports whether a baseline, given by namespace/name, is one of the documents.
func (k *known) has(title string) bool {
	namespace, name, _ := strings.Cut(title, "/")
	return slices.ContainsFunc(k.documents, func(d *v1alpha1.PolicyBaseline) bool { return d.Namespace == namespace && d.Name == name })
}

// encode returns the file. What no entry can allow is nil to stay as it is.
func (k *known) encode(notCovered []v1alpha1.UncoveredRule) ([]byte, error) {
	rules := make([]map[baseline.RuleName][]baseline.Entry, len(k.documents))
	for i := range rules {
		rules[i] = map[baseline.RuleName][]baseline.Entry{}
	}
	for id, of := range k.entries {
		for _, e := range of {
			rules[e.document][id] = append(rules[e.document][id], e.Entry)
		}
	}
	texts := []string{"# Violations that are allowed until they are mended. 'gatehouse audit --baseline' writes this file.\n"}
	for i, d := range k.documents {
		d.Spec.Rules = nil
		if i == 0 && notCovered != nil {
			d.Spec.NotCovered = notCovered[:min(len(notCovered), baseline.MaxEntries)]
		}
		for id, entries := range rules[i] {
			slices.SortFunc(entries, baseline.Entry.Compare)
			r := v1alpha1.BaselineRule{Kind: id.Kind, Policy: id.Policy, Rule: id.Rule}
			for _, e := range entries {
				r.Entries = append(r.Entries, e.String())
			}
			d.Spec.Rules = append(d.Spec.Rules, r)
		}
		slices.SortFunc(d.Spec.Rules, func(a, b v1alpha1.BaselineRule) int {
			return baseline.RuleName{Kind: a.Kind, Policy: a.Policy, Rule: a.Rule}.Compare(baseline.RuleName{Kind: b.Kind, Policy: b.Policy, Rule: b.Rule})
		})
		text, err := encodeBaseline(d)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return []byte(texts[0] + strings.Join(texts[1:], "---\n")), nil
}

// collector is a sink that compares violations with a baseline: what the baseline has counts as baselined. With take, it has what is
// found.
type collector struct {
	audit.Sink
	known *known
	take  bool
	now   time.Time
	// reach says about which objects a baseline of a namespace can be, and idle counts violations that have an entry which does nothing,
	// because the document is in the wrong namespace.
	reach func(namespace string) policy.Reach
	idle  int64
	// fresh counts violations that the baseline does not have, and notCovered those that it cannot have, by the reason.
	fresh      map[baseline.RuleName]int64
	notCovered map[uncoveredID]*v1alpha1.UncoveredRule
	// ended counts violations of objects that make no pod any more, which need no entry.
	ended int64
}

// uncoveredID identifies violations that no entry can allow: a rule may have several reasons.
type uncoveredID struct{ kind, policy, rule, reason string }

func newCollector(k *known, take bool, now time.Time, reach func(namespace string) policy.Reach, sink audit.Sink) *collector {
	return &collector{
		Sink: sink, known: k, take: take, now: now, reach: reach, fresh: map[baseline.RuleName]int64{}, notCovered: map[uncoveredID]*v1alpha1.UncoveredRule{},
	}
}

// Result implements audit.Sink.
func (c *collector) Result(r audit.Result) {
	violated := r.Status == audit.Fail || r.Status == audit.Warn || r.Baseline != ""
	id := baseline.RuleName{Kind: r.Kind, Policy: r.Policy, Rule: r.Rule}
	switch {
	case !violated:
	case r.Entry != nil:
		e := c.known.entries[id][r.Entry.Digest]
		switch {
		case e != nil:
			e.seen = e.seen || !r.HasEnded
		case r.HasEnded:
			c.ended++
			return
		case r.Baseline != "" && !c.known.has(r.Baseline): // another baseline has it
		case c.take:
			e = c.known.add(id, *r.Entry)
		default:
			c.fresh[cloned(id)]++
		}
		if e != nil && c.allows(e.document, r.Object.Namespace) {
			r.Status, r.Baseline = audit.Skip, c.known.title(e.document)
		}
	case r.NotCovered != "":
		of := c.notCovered[uncoveredID{r.Kind, r.Policy, r.Rule, r.NotCovered}]
		if of == nil {
			of = &v1alpha1.UncoveredRule{Kind: strings.Clone(r.Kind), Policy: strings.Clone(r.Policy), Rule: strings.Clone(r.Rule), Reason: strings.Clone(r.NotCovered)}
			c.notCovered[uncoveredID{of.Kind, of.Policy, of.Rule, of.Reason}] = of
		}
		of.Violations++
	}
	c.Sink.Result(r)
}

// allows reports whether an entry of a document allows a violation by an object in a namespace, as for a server.
func (c *collector) allows(document int, namespace string) bool {
	d := c.known.documents[document]
	reach := c.reach(d.Namespace)
	if reach == policy.ReachesNothing || reach == policy.ReachesOwn && d.Namespace != namespace {
		c.idle++
		return false
	}
	return d.Spec.ExpiresAt.After(c.now)
}

// uncovered returns the rules whose violations no entry can allow, in the order of documents.
func (c *collector) uncovered() []v1alpha1.UncoveredRule {
	out := make([]v1alpha1.UncoveredRule, 0, len(c.notCovered))
	for _, of := range c.notCovered {
		out = append(out, *of)
	}
	slices.SortFunc(out, func(a, b v1alpha1.UncoveredRule) int {
		return cmp.Or(baseline.RuleName{Kind: a.Kind, Policy: a.Policy, Rule: a.Rule}.Compare(baseline.RuleName{Kind: b.Kind, Policy: b.Policy, Rule: b.Rule}), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// evaluated returns a function that reports whether an audit has evaluated the rule of an entry: what was not looked at is not gone. A
// policy that does not exist is, if all policies of the cluster are known.
func (f *auditFlags) evaluated(c *config.Config, skipped []audit.Skipped, knowsAll bool) func(id baseline.RuleName, object string) bool {
	policies := map[baseline.RuleName]bool{}
	for _, p := range c.Policy.All() {
		policies[baseline.RuleName{Kind: p.Kind, Policy: p.Name}] = len(p.Bindings) > 0
	}
	for _, s := range skipped {
		policies[baseline.RuleName{Kind: s.Kind, Policy: s.Policy, Rule: s.Rule}] = false
	}
	return func(id baseline.RuleName, object string) bool {
		if isEvaluated, named := policies[id]; named && !isEvaluated || len(f.kinds) > 0 {
			return false
		}
		isActive, exists := policies[baseline.RuleName{Kind: id.Kind, Policy: id.Policy}]
		namespace, _, _ := strings.Cut(object, "/")
		return (isActive || !exists && knowsAll) && !slices.Contains(f.excluded, namespace) && (len(f.namespaces) == 0 || slices.Contains(f.namespaces, namespace))
	}
}

// concludeBaseline compares the baseline with what was found, prunes and writes it as the flags say, and adds the result to the report.
// KnowsAll reports whether the configuration has all policies of the cluster, and ended whether the audit has ended early.
func (f *auditFlags) concludeBaseline(r *report, c *collector, of *config.Config, knowsAll, ended bool) error {
	k := c.known
	out := &baselineReport{
		File: k.path, Documents: k.names(), ExpiresAt: k.expiry(), Expired: !k.expiry().After(c.now), Idle: c.idle, Ended: c.ended, NotCovered: c.uncovered(),
	}
	isEvaluated := f.evaluated(of, r.Skipped, knowsAll)
	rules := map[baseline.RuleName]*baselineRule{}
	rule := func(id baseline.RuleName) *baselineRule {
		if rules[id] == nil {
			rules[id] = &baselineRule{Kind: id.Kind, Policy: id.Policy, Rule: id.Rule}
		}
		return rules[id]
	}
	for id, entries := range k.entries {
		for digest, e := range entries {
			row := rule(id)
			switch {
			case e.added:
				row.Added++
			case e.seen:
			case !isEvaluated(id, e.Object):
				out.Unjudged++
			case f.baseline.prune && r.Complete:
				row.Pruned++
				delete(entries, digest)
				k.sizes[e.document]--
				continue
			case r.Complete:
				row.Gone++
			}
			row.Entries++
		}
	}
	for id, n := range c.fresh {
		rule(id).New = n
	}
	for _, row := range rules {
		out.Rules = append(out.Rules, *row)
		out.Entries, out.Added, out.Pruned, out.Gone, out.New = out.Entries+row.Entries, out.Added+row.Added, out.Pruned+row.Pruned, out.Gone+row.Gone, out.New+row.New
	}
	slices.SortFunc(out.Rules, func(a, b baselineRule) int {
		return baseline.RuleName{Kind: a.Kind, Policy: a.Policy, Rule: a.Rule}.Compare(baseline.RuleName{Kind: b.Kind, Policy: b.Policy, Rule: b.Rule})
	})
	for i, n := range k.sizes {
		if n == 0 && k.exists {
			out.Empty = append(out.Empty, k.title(i))
		}
	}
	out.NotPruned = f.baseline.prune && !r.Complete
	r.Baseline = out
	if ended || k.exists && !k.changed && out.Added+out.Pruned == 0 {
		return nil
	}
	notCovered := out.NotCovered
	if k.exists && len(f.namespaces)+len(f.kinds) > 0 {
		notCovered = nil // not all of them were looked at
	}
	text, err := k.encode(notCovered)
	if err == nil {
		err = cli.ReplaceFile(k.path, text)
	}
	if err != nil {
		return fmt.Errorf("--baseline %s: cannot be written: %w", cli.InertName(k.path), cli.Cause(err))
	}
	out.Documents, out.Written, out.Partial = k.names(), true, c.take && !r.Complete
	return nil
}

// baselineReport is what became of a baseline.
type baselineReport struct {
	// File is its path, and Documents are the names of the PolicyBaselines in it.
	File      string    `json:"file"`
	Documents []string  `json:"documents"`
	ExpiresAt time.Time `json:"expiresAt"`
	Expired   bool      `json:"expired,omitempty"`
	// Written reports whether the file was written.
	Written bool `json:"written"`
	// Entries is the number of entries, of which Added are new. Pruned were dropped. Gone are those whose violations no longer exist,
	// and New is the number of violations that have no entry.
	Entries int64 `json:"entries"`
	Added   int64 `json:"added"`
	Pruned  int64 `json:"pruned"`
	Gone    int64 `json:"gone"`
	New     int64 `json:"new"`
	// Unjudged is the number of entries whose rule or namespace the audit has not looked at, and Ended that of violations of objects
	// that make no pod any more.
	Unjudged int64 `json:"unjudged,omitempty"`
	Ended    int64 `json:"ended,omitempty"`
	// Idle is the number of violations with an entry that does nothing, because baselines of its namespace cannot be about the object.
	Idle int64 `json:"idle,omitempty"`
	// NotPruned reports that nothing was dropped because the audit is not complete.
	NotPruned bool `json:"notPruned,omitempty"`
	// Partial reports that entries were added although the audit is not complete.
	Partial bool           `json:"partial,omitempty"`
	Rules   []baselineRule `json:"rules,omitempty"`
	// NotCovered are rules whose violations no entry can allow, with the reasons.
	NotCovered []v1alpha1.UncoveredRule `json:"notCovered,omitempty"`
	// Empty are the PolicyBaselines without entries, which can be deleted.
	Empty []string `json:"empty,omitempty"`
}

// baselineRule is what became of the entries of a rule.
type baselineRule struct {
	Kind    string `json:"kind"`
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Entries int64  `json:"entries"`
	Added   int64  `json:"added,omitempty"`
	Pruned  int64  `json:"pruned,omitempty"`
	Gone    int64  `json:"gone,omitempty"`
	New     int64  `json:"new,omitempty"`
}

// print writes what became of the baseline.
func (b *baselineReport) print(line func(string, ...any)) {
	line("")
	line("%8s  %8s  %8s  %8s  %8s  %s", "ENTRIES", "ADDED", "PRUNED", "GONE", "NEW", "RULE")
	for i := range b.Rules {
		r := &b.Rules[i]
		line("%8s  %8s  %8s  %8s  %8s  %s", grouped(r.Entries), grouped(r.Added), grouped(r.Pruned), grouped(r.Gone), grouped(r.New), ruleTitle(r.Kind, r.Policy, r.Rule))
	}
	if len(b.NotCovered) > 0 {
		line("")
		line("not in the baseline:")
		for i := range b.NotCovered {
			n := &b.NotCovered[i]
			line("  %s: %s (%s)", ruleTitle(n.Kind, n.Policy, n.Rule), cli.Inert(n.Reason), diagnostic.Count(int(n.Violations), "violation"))
		}
	}
	line("")
	for _, text := range b.sentences() {
		line("%s", cli.InertName(b.File)+": "+text)
	}
}

// sentences say what became of the baseline, and what to do.
func (b *baselineReport) sentences() (out []string) {
	entries, until := numberOf(b.Entries, "entry", "entries"), b.ExpiresAt.Format(time.RFC3339)
	switch {
	case b.Written && b.Added+b.Pruned > 0:
		out = append(out, fmt.Sprintf("written with %s until %s: %s added, %s dropped", entries, until, grouped(b.Added), grouped(b.Pruned)))
	case b.Written:
		out = append(out, fmt.Sprintf("written with %s until %s", entries, until))
	default:
		out = append(out, fmt.Sprintf("not changed, %s until %s", entries, until))
	}
	add := func(condition bool, format string, args ...any) {
		if condition {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(b.Expired, "it has expired, and allows nothing (hint: --expires DATE gives it another end)")
	add(b.Idle > 0, "%s nothing: baselines count in the namespaces that the PolicyConfiguration allows for exceptions (hint: set metadata.namespace, for example to %s)",
		numberOf(b.Idle, "entry does", "entries do"), install.DefaultNamespace)
	add(b.New > 0, "%s not in it (hint: mend them, or accept them with --add)", numberOf(b.New, "violation is", "violations are"))
	add(b.Gone > 0, "%s no longer needed (hint: --prune drops them)", numberOf(b.Gone, "entry is", "entries are"))
	add(b.NotPruned, "nothing was dropped, because the audit is not complete")
	add(b.Partial, "the audit is not complete, so violations of what was not judged may be missing (hint: mend that, and audit again with --add)")
	add(b.Unjudged > 0, "%s of rules or namespaces that this audit does not look at", numberOf(b.Unjudged, "entry is", "entries are"))
	add(b.Ended > 0, "%s left out: of what makes no pods any more", numberOf(b.Ended, "violation is", "violations are"))
	for _, name := range b.Empty {
		add(true, "PolicyBaseline %s has no entries (hint: delete it in the cluster and here)", cli.InertName(name))
	}
	return out
}

// numberOf returns a number with a noun for one, or for others.
func numberOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}
