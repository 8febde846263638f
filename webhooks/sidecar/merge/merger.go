// Package merge merges a partial object into the JSON text of a pod, by rules for each
// field. Every change is an operation of a JSON patch and a splice of the text.
//
// It also has the field paths that find a value again when others have changed the pod,
// and the canonical form in which the API server writes a value.
package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// The merge rules. What a template says about a field of a pod is put there if
// the pod says nothing, or nothing but what the API server puts in by default.
// Objects are merged member by member. Lists whose elements have a key are
// merged by it, other lists of which every element stands for itself are united,
// and every other list is one value. The pod's own elements keep their order,
// what is added comes behind them.
//
// They are not those of a strategic merge patch, which puts new elements in
// front, takes ports by number alone, leaves both value and valueFrom in an
// environment variable and replaces tolerations as a whole.

// Rule says how one field is merged.
type Rule struct {
	// mapKeys are the members by which the elements of a list are told apart, with
	// what the API server puts in where one is absent: "protocol=TCP".
	mapKeys []string
	// IsSet says that the elements of a list stand for themselves.
	IsSet bool
	// IsAtomic says that an object, or an element with the same key, is one value;
	// otherwise it is merged member by member.
	IsAtomic bool
	// oneOf are members of an object that exclude each other: if the pod has
	// chosen, none is added.
	oneOf []string
	// maxItems is how many elements a list may have, if that is bounded.
	maxItems int
	// disjointFrom is the other list of a container that none of a list's paths may be
	// in.
	disjointFrom string
	// pair is the other of requests and limits: what the pod says about a
	// resource in one of them is not completed in the other.
	pair string
	// unique is a member that no two elements of a list may have alike.
	unique string
	// contradicts reports whether a member cannot be added to what an object says.
	contradicts func(object rawjson.Value, name string, value rawjson.Value) bool
	// apiDefault is the value, as JSON, that the API server puts in where a pod's
	// author says nothing.
	apiDefault string
	Fields     map[string]*Rule
	// values is the rule for every member of an object whose names are not known.
	values *Rule
	// isQuantity says that the value is one, which can be written in many ways.
	isQuantity bool
}

func (r *Rule) Field(name string) *Rule {
	if r == nil {
		return nil
	}
	if r.values != nil {
		return r.values
	}
	return r.Fields[name]
}

// excludes reports whether an object has chosen another member than the one that is
// to be added.
func (r *Rule) excludes(object rawjson.Value, name string) bool {
	return r != nil && slices.Contains(r.oneOf, name) && slices.ContainsFunc(r.oneOf, func(other string) bool {
		kind := object.Get(other).Kind()
		return other != name && kind != rawjson.Invalid && kind != rawjson.Null
	})
}

func (r *Rule) IsMergedList() bool { return r != nil && (r.IsSet || len(r.mapKeys) > 0) }

// podRules are the rules for a pod's spec, without the lists of containers and
// volumes; containerRules are those for a container.
//
//nolint:gochecknoglobals // tables that nobody changes
var (
	listSet     = &Rule{IsSet: true}
	atomicField = &Rule{IsAtomic: true}
	// handler is a probe or a hook of a container's life.
	handler  = &Rule{oneOf: []string{"exec", "grpc", "httpGet", "sleep", "tcpSocket"}}
	quantity = &Rule{isQuantity: true}

	PodRules = &Rule{contradicts: contradictsNode, Fields: map[string]*Rule{
		"dnsPolicy":                     {apiDefault: `"ClusterFirst"`},
		"restartPolicy":                 {apiDefault: `"Always"`},
		"schedulerName":                 {apiDefault: `"default-scheduler"`},
		"serviceAccount":                {apiDefault: `"default"`},
		"serviceAccountName":            {apiDefault: `"default"`},
		"terminationGracePeriodSeconds": {apiDefault: `30`},
		"enableServiceLinks":            {apiDefault: `true`},
		"imagePullSecrets":              {mapKeys: []string{"name"}},
		"tolerations":                   listSet,
		"hostAliases":                   {mapKeys: []string{"ip"}, Fields: map[string]*Rule{"hostnames": listSet}},
		"readinessGates":                {mapKeys: []string{"conditionType"}},
		"schedulingGates":               {mapKeys: []string{"name"}},
		"resourceClaims":                {mapKeys: []string{"name"}, IsAtomic: true},
		"topologySpreadConstraints":     {mapKeys: []string{"topologyKey", "whenUnsatisfiable=DoNotSchedule"}, IsAtomic: true},
		"dnsConfig": {Fields: map[string]*Rule{
			"nameservers": {IsSet: true, maxItems: 3}, "searches": {IsSet: true, maxItems: 32}, "options": {mapKeys: []string{"name"}, IsAtomic: true},
		}},
		"overhead":  {values: quantity},
		"resources": {Fields: map[string]*Rule{"requests": {values: quantity}, "limits": {values: quantity}}},
		"securityContext": {Fields: map[string]*Rule{
			"supplementalGroups": listSet, "sysctls": {mapKeys: []string{"name"}, IsAtomic: true},
			"seccompProfile": atomicField, "appArmorProfile": atomicField,
		}},
		"affinity": {Fields: map[string]*Rule{
			// The terms that a node must meet are alternatives: uniting them
			// would widen what the pod's author has narrowed.
			"nodeAffinity":    {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet}},
			"podAffinity":     {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet, "requiredDuringSchedulingIgnoredDuringExecution": listSet}},
			"podAntiAffinity": {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet, "requiredDuringSchedulingIgnoredDuringExecution": listSet}},
		}},
	}}

	ContainerRules = &Rule{Fields: map[string]*Rule{
		"terminationMessagePath":   {apiDefault: `"/dev/termination-log"`},
		"terminationMessagePolicy": {apiDefault: `"File"`},
		"env":                      {mapKeys: []string{"name"}, IsAtomic: true},
		"envFrom":                  listSet,
		"ports":                    {mapKeys: []string{"containerPort", "protocol=TCP"}, IsAtomic: true, unique: "name"},
		"volumeMounts":             {mapKeys: []string{"mountPath"}, IsAtomic: true, disjointFrom: "volumeDevices"},
		"volumeDevices":            {mapKeys: []string{"devicePath"}, IsAtomic: true, disjointFrom: "volumeMounts"},
		"resizePolicy":             {mapKeys: []string{"resourceName"}, IsAtomic: true},
		"resources": {Fields: map[string]*Rule{
			"claims": {mapKeys: []string{"name"}, IsAtomic: true}, "requests": {pair: "limits", values: quantity}, "limits": {pair: "requests", values: quantity},
		}},
		"securityContext": {contradicts: contradictsPrivileges, Fields: map[string]*Rule{
			"capabilities":    {Fields: map[string]*Rule{"add": listSet, "drop": listSet}},
			"seccompProfile":  atomicField,
			"appArmorProfile": atomicField,
		}},
		"startupProbe":   handler,
		"readinessProbe": handler,
		"livenessProbe":  handler,
		"lifecycle":      {Fields: map[string]*Rule{"postStart": handler, "preStop": handler}},
	}}
)

// Merger merges what one profile says into a pod.
type Merger struct {
	Editor *Editor
	// Earlier are the trails of what the profile has added before: whatever it is
	// now, it is no conflict.
	Earlier map[string]bool
	// Added are the trails of what it adds now, and of what it has added before
	// and is still in place.
	Added []string
	// OnConflict tells what to do where the pod has something else. It is called with
	// the field's path for people and what is said about it.
	OnConflict func(path, message string)
	// OnClash is kept for what the API server refuses a pod, whoever says it. Nil
	// stands for kept.
	OnClash func(path, message string)

	// Record notes what is created and what stood where something else is put.
	Record *Record
}

// Record is what reverting a merge needs beside what was added.
type Record struct {
	// Created are the trails of what was made for what was put into it.
	Created []string `json:"created"`
	// Originals are what stood, by trail, where something else was put.
	Originals map[string]json.RawMessage `json:"originals"`
}

// NoteOriginal notes what stood where something else is put. What was noted first is
// what was there before.
func (r *Record) NoteOriginal(trail string, value json.RawMessage) {
	if r.Originals == nil {
		r.Originals = make(map[string]json.RawMessage)
	}
	if _, known := r.Originals[trail]; !known {
		r.Originals[trail] = value
	}
}

// NoteCreated notes that an object or list is made, where nothing was or null.
func (r *Record) NoteCreated(trail string, was rawjson.Value) {
	r.Created = append(r.Created, trail)
	if was.Kind() == rawjson.Null {
		r.NoteOriginal(trail, json.RawMessage("null"))
	}
}

// Path is where a merge is: the JSON pointer for the patch, the trail by which
// it is found again when indexes have changed, and the path for people.
type Path struct{ Pointer, FieldPath, Display string }

func (p Path) Member(name string) Path {
	token := Escape(name)
	path := name
	if strings.ContainsAny(name, "./[] ") {
		path = "[" + name + "]"
	} else if p.Display != "" {
		path = "." + name
	}
	return Path{p.Pointer + "/" + token, p.FieldPath + "/" + token, p.Display + path}
}

func (p Path) Element(index int, key string) Path {
	n := strconv.Itoa(index)
	return Path{p.Pointer + "/" + n, p.FieldPath + "/" + key, p.Display + "[" + n + "]"}
}

// Object merges an object of a template into one of the pod.
func (m *Merger) Object(at Path, own, template rawjson.Value, rules *Rule) error {
	if key, twice := own.DuplicateKey(); twice {
		return fmt.Errorf("%s: %w", at.Display, &rawjson.DuplicateKeyError{Key: key})
	}
	for nameText, value := range template.Members() {
		name := nameText.Text()
		if rules != nil && rules.contradicts != nil && rules.contradicts(own, name, value) {
			m.OnConflict(at.Member(name).Display, "what the pod says beside it excludes what the profile says")
			continue
		}
		if rules.excludes(own, name) {
			m.OnConflict(at.Display, fmt.Sprintf("the pod has another choice than %q, which the profile makes", name))
			continue
		}
		if err := m.Member(at.Member(name), own, name, value, rules.Field(name)); err != nil {
			return err
		}
	}
	return nil
}

// Member merges one member into the object own.
func (m *Merger) Member(at Path, object rawjson.Value, name string, value rawjson.Value, r *Rule) error {
	own := object.Get(name)
	if r != nil && r.disjointFrom != "" {
		value = m.withoutUsedPaths(at, object.Get(r.disjointFrom), value)
	}
	if r != nil && r.pair != "" {
		value = m.withoutUnpaired(at, object.Get(r.pair), own, value)
	}
	switch {
	case value.Kind() == rawjson.Null:
		return nil
	case own == nil:
		value = m.deduplicate(at, value, r)
		m.noteAdded(at.FieldPath, value, r)
		return m.Editor.Add(at.Pointer, object, name, json.RawMessage(value))
	case own.Kind() == rawjson.Null, r != nil && r.apiDefault != "" && r.apiDefault == string(own) && string(own) != string(value):
		value = m.deduplicate(at, value, r)
		m.Record.NoteOriginal(at.FieldPath, json.RawMessage(bytes.Clone(own)))
		m.noteAdded(at.FieldPath, value, r)
		return m.Editor.Replace(at.Pointer, own, json.RawMessage(value))
	case own.Kind() == rawjson.Object && value.Kind() == rawjson.Object && (r == nil || !r.IsAtomic):
		return m.Object(at, own, value, r)
	case own.Kind() == rawjson.Array && value.Kind() == rawjson.Array && r.IsMergedList():
		return m.list(at, own, m.deduplicate(at, value, r), r)
	case m.Earlier[at.FieldPath]:
		m.Added = append(m.Added, at.FieldPath)
	case !r.equal(own, value):
		m.OnConflict(at.Display, fmt.Sprintf("the pod has %s, and the profile says %s", Describe(own), Describe(value)))
	}
	return nil
}

// deduplicate returns a value without the elements that its lists have twice. That two
// are one may show only now that they are rendered.
func (m *Merger) deduplicate(at Path, value rawjson.Value, r *Rule) rawjson.Value {
	dst := []byte{'{'}
	switch {
	case r == nil || value.Len() == 0:
		return value
	case value.Kind() == rawjson.Object && !r.IsAtomic && len(r.Fields) > 0:
		for name, below := range value.Members() {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			text := name.Text()
			dst = append(append(append(dst, name...), ':'), m.deduplicate(at.Member(text), below, r.Field(text))...)
		}
		return append(dst, '}')
	case value.Kind() != rawjson.Array || !r.IsMergedList():
		return value
	}
	first := make(map[string]rawjson.Value, value.Len())
	dst[0] = '['
	for i, element := range value.Elements() {
		key := r.Identity(element)
		other, twice := first[key]
		switch {
		case !twice:
			first[key] = element
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(dst, element...)
		case !r.IsSet && !Equal(other, element):
			m.OnConflict(at.Element(i, key).Display, "the profile says two things of the same "+r.KeyNames())
		}
	}
	return append(dst, ']')
}

// withoutUsedPaths returns a list of mounts or devices without those whose path is that of one in
// the other list.
func (m *Merger) withoutUsedPaths(at Path, other, value rawjson.Value) rawjson.Value {
	if other.Len() == 0 {
		return value
	}
	path := func(v rawjson.Value) string { return v.Get("mountPath").Text() + v.Get("devicePath").Text() }
	taken := make(map[string]bool)
	for _, theirs := range other.Elements() {
		taken[path(theirs)] = true
	}
	var rest []byte
	for _, element := range value.Elements() {
		if taken[path(element)] {
			m.OnConflict(at.Display, fmt.Sprintf("the container has a device or mount at %q already", strict.Cut(path(element), 64)))
			continue
		}
		rest = append(append(rest, ','), element...)
	}
	if len(rest) == 0 {
		return rawjson.Value("null")
	}
	rest[0] = '['
	return append(rest, ']')
}

// withoutUnpaired returns requests or limits without those for which the pod has the other
// of the two alone.
func (m *Merger) withoutUnpaired(at Path, other, own, value rawjson.Value) rawjson.Value {
	if other.Len() == 0 {
		return value
	}
	rest := []byte{'{'}
	for name, quantity := range value.Members() {
		if text := name.Text(); own.Get(text) == nil && other.Get(text) != nil {
			m.OnConflict(at.Member(text).Display, "the pod says itself what it needs of it")
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, name...), ':'), quantity...)
	}
	if len(rest) == 1 {
		return rawjson.Value("null")
	}
	return append(rest, '}')
}

// contradictsNode reports whether a field of a pod's spec cannot stand beside the others: what
// a pod shares with its node, and where it is before it is scheduled.
func contradictsNode(spec rawjson.Value, name string, value rawjson.Value) bool {
	switch name {
	case "shareProcessNamespace":
		return value.IsTrue() && spec.Get("hostPID").IsTrue()
	case "hostPID":
		return value.IsTrue() && spec.Get("shareProcessNamespace").IsTrue()
	case "hostUsers":
		return string(value) == "false" && (spec.Get("hostNetwork").IsTrue() || spec.Get("hostPID").IsTrue() || spec.Get("hostIPC").IsTrue())
	case "schedulingGates":
		return spec.Get("nodeName").Text() != ""
	case "securityContext":
		for _, sysctl := range value.Get("sysctls").Elements() {
			if strings.HasPrefix(sysctl.Get("name").Text(), "net") && spec.Get("hostNetwork").IsTrue() {
				return true
			}
		}
	}
	return false
}

// contradictsPrivileges reports whether a member of a securityContext cannot stand beside the
// others: a container that may not get more privileges than it starts with is
// neither privileged nor has SYS_ADMIN.
func contradictsPrivileges(object rawjson.Value, name string, value rawjson.Value) bool {
	admin := func(capabilities rawjson.Value) bool {
		for _, capability := range capabilities.Get("add").Elements() {
			if capability.Is("SYS_ADMIN") || capability.Is("CAP_SYS_ADMIN") {
				return true
			}
		}
		return false
	}
	bound := string(object.Get("allowPrivilegeEscalation")) == "false"
	switch name {
	case "allowPrivilegeEscalation":
		return string(value) == "false" && (object.Get("privileged").IsTrue() || admin(object.Get("capabilities")))
	case "privileged":
		return bound && value.IsTrue()
	case "capabilities":
		return bound && admin(value)
	default:
		return false
	}
}

// list merges the elements of a list of the template into one of the pod.
func (m *Merger) list(at Path, own, template rawjson.Value, r *Rule) error {
	count := own.Len()
	there := newElementFinder(own, r, template)
	for _, value := range template.Elements() {
		key := r.Key(value)
		index, element := there.find(key, value)
		switch {
		case index < 0 && r.maxItems > 0 && count >= r.maxItems:
			m.OnConflict(at.Display, fmt.Sprintf("the pod has %d of at most %d, and the profile adds %s", own.Len(), r.maxItems, Describe(value)))
		case index < 0 && m.isDuplicate(at, own, value, r):
		case index < 0:
			count++
			m.Added = append(m.Added, at.FieldPath+"/"+key)
			if err := m.Editor.Push(at.Pointer+"/-", own, json.RawMessage(value)); err != nil {
				return err
			}
		case m.Earlier[at.FieldPath+"/"+key]:
			m.Added = append(m.Added, at.FieldPath+"/"+key)
		case r.IsSet:
		case !r.IsAtomic && element.Kind() == rawjson.Object && value.Kind() == rawjson.Object:
			if err := m.Object(at.Element(index, key), element, value, r); err != nil {
				return err
			}
		case !Equal(element, value):
			m.OnConflict(at.Element(index, key).Display, fmt.Sprintf("the pod has %s, and the profile says %s", Describe(element), Describe(value)))
		}
	}
	return nil
}

// isDuplicate reports whether an element cannot be added to a list because another one
// has what no two may have.
func (m *Merger) isDuplicate(at Path, own, value rawjson.Value, r *Rule) bool {
	if r.unique == "" || value.Get(r.unique).Text() == "" {
		return false
	}
	text := value.Get(r.unique).Text()
	for i, element := range own.Elements() {
		if element.Get(r.unique).Is(text) {
			clash := m.OnClash
			if clash == nil {
				clash = m.OnConflict
			}
			clash(at.Element(i, "").Member(r.unique).Display, fmt.Sprintf("%s is the %s of another one that the profile adds", Describe(value.Get(r.unique)), r.unique))
			return true
		}
	}
	return false
}

// noteAdded remembers what is added where nothing was: each leaf for itself, because
// others may add beside it, and what is around them as created.
func (m *Merger) noteAdded(trail string, value rawjson.Value, r *Rule) {
	switch {
	case value.Kind() == rawjson.Object && value.Len() > 0 && (r == nil || !r.IsAtomic):
		m.Record.Created = append(m.Record.Created, trail)
		for name, below := range value.Members() {
			m.noteAdded(trail+"/"+Escape(name.Text()), below, r.Field(name.Text()))
		}
	case value.Kind() == rawjson.Array && r.IsMergedList():
		m.Record.Created = append(m.Record.Created, trail)
		for _, below := range value.Elements() {
			m.Added = append(m.Added, trail+"/"+r.Key(below))
		}
	default:
		m.Added = append(m.Added, trail)
	}
}

// Identity returns one text for all elements of a list that are one.
func (r *Rule) Identity(element rawjson.Value) string {
	if r.IsSet {
		return Canonical(element)
	}
	return r.Key(element)
}

// KeyNames returns the members by which the elements of a list are told apart, for
// people.
func (r *Rule) KeyNames() string {
	names := make([]string, len(r.mapKeys))
	for i, key := range r.mapKeys {
		names[i], _, _ = strings.Cut(key, "=")
	}
	return strings.Join(names, " and ")
}

// equal compares two values of a field.
func (r *Rule) equal(a, b rawjson.Value) bool {
	if r != nil && r.isQuantity {
		x, okX := ReadQuantity(a)
		y, okY := ReadQuantity(b)
		if okX && okY {
			return x.Cmp(y) == 0
		}
	}
	return Equal(a, b)
}

// findElement looks for the element with a key.
func findElement(list rawjson.Value, r *Rule, key string, value rawjson.Value) (int, rawjson.Value) {
	for i, element := range list.Elements() {
		if r.IsSet && Equal(element, value) || !r.IsSet && r.Key(element) == key {
			return i, element
		}
	}
	return -1, nil
}

// Equal compares two values as the API server does: the order of members and the
// way in which a number or text is written make no difference.
func Equal(a, b rawjson.Value) bool {
	if string(a) == string(b) {
		return true
	}
	if a.Kind() != b.Kind() {
		return false
	}
	x, errX := a.Decode()
	y, errY := b.Decode()
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// Describe returns a value as it may be shown in a message. Only texts and numbers are
// shown: an object may hold what is nobody's business.
func Describe(v rawjson.Value) string {
	const most = 64
	switch v.Kind() {
	case rawjson.String:
		return strconv.Quote(strict.Cut(v.Text(), most))
	case rawjson.Number, rawjson.Bool:
		return strict.Cut(string(v), most)
	case rawjson.Array:
		return "another list"
	case rawjson.Object:
		return "another value"
	case rawjson.Null, rawjson.Invalid:
		return "nothing"
	default:
		return "nothing"
	}
}
