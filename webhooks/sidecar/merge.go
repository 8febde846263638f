package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
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

// rule says how one field is merged.
type rule struct {
	// keys are the members by which the elements of a list are told apart, with
	// what the API server puts in where one is absent: "protocol=TCP".
	keys []string
	// united says that the elements of a list stand for themselves.
	united bool
	// whole says that an object, or an element with the same key, is one value;
	// otherwise it is merged member by member.
	whole bool
	// choice are members of an object that exclude each other: if the pod has
	// chosen, none is added.
	choice []string
	// most is how many elements a list may have, if that is bounded.
	most int
	// beside is the other list of a container that none of a list's paths may be
	// in.
	beside string
	// pair is the other of requests and limits: what the pod says about a
	// resource in one of them is not completed in the other.
	pair string
	// unique is a member that no two elements of a list may have alike.
	unique string
	// contradicts tells whether a member cannot be added to what an object says.
	contradicts func(object rawjson.Value, name string, value rawjson.Value) bool
	// absent is the value, as JSON, that the API server puts in where a pod's
	// author says nothing.
	absent string
	fields map[string]*rule
	// each is the rule for every member of an object whose names are not known.
	each *rule
	// quantity says that the value is one, which can be written in many ways.
	quantity bool
}

func (r *rule) field(name string) *rule {
	if r == nil {
		return nil
	}
	if r.each != nil {
		return r.each
	}
	return r.fields[name]
}

// excludes tells whether an object has chosen another member than the one that is
// to be added.
func (r *rule) excludes(object rawjson.Value, name string) bool {
	return r != nil && slices.Contains(r.choice, name) && slices.ContainsFunc(r.choice, func(other string) bool {
		kind := object.Get(other).Kind()
		return other != name && kind != rawjson.Invalid && kind != rawjson.Null
	})
}

func (r *rule) list() bool { return r != nil && (r.united || len(r.keys) > 0) }

// podRules are the rules for a pod's spec, without the lists of containers and
// volumes; containerRules are those for a container.
//
//nolint:gochecknoglobals // tables that nobody changes
var (
	united = &rule{united: true}
	atomic = &rule{whole: true}
	// handler is a probe or a hook of a container's life.
	handler  = &rule{choice: []string{"exec", "grpc", "httpGet", "sleep", "tcpSocket"}}
	quantity = &rule{quantity: true}

	podRules = &rule{contradicts: hosts, fields: map[string]*rule{
		"dnsPolicy":                     {absent: `"ClusterFirst"`},
		"restartPolicy":                 {absent: `"Always"`},
		"schedulerName":                 {absent: `"default-scheduler"`},
		"serviceAccount":                {absent: `"default"`},
		"serviceAccountName":            {absent: `"default"`},
		"terminationGracePeriodSeconds": {absent: `30`},
		"enableServiceLinks":            {absent: `true`},
		"imagePullSecrets":              {keys: []string{"name"}},
		"tolerations":                   united,
		"hostAliases":                   {keys: []string{"ip"}, fields: map[string]*rule{"hostnames": united}},
		"readinessGates":                {keys: []string{"conditionType"}},
		"schedulingGates":               {keys: []string{"name"}},
		"resourceClaims":                {keys: []string{"name"}, whole: true},
		"topologySpreadConstraints":     {keys: []string{"topologyKey", "whenUnsatisfiable=DoNotSchedule"}, whole: true},
		"dnsConfig": {fields: map[string]*rule{
			"nameservers": {united: true, most: 3}, "searches": {united: true, most: 32}, "options": {keys: []string{"name"}, whole: true},
		}},
		"overhead":  {each: quantity},
		"resources": {fields: map[string]*rule{"requests": {each: quantity}, "limits": {each: quantity}}},
		"securityContext": {fields: map[string]*rule{
			"supplementalGroups": united, "sysctls": {keys: []string{"name"}, whole: true},
			"seccompProfile": atomic, "appArmorProfile": atomic,
		}},
		"affinity": {fields: map[string]*rule{
			// The terms that a node must meet are alternatives: uniting them
			// would widen what the pod's author has narrowed.
			"nodeAffinity":    {fields: map[string]*rule{"preferredDuringSchedulingIgnoredDuringExecution": united}},
			"podAffinity":     {fields: map[string]*rule{"preferredDuringSchedulingIgnoredDuringExecution": united, "requiredDuringSchedulingIgnoredDuringExecution": united}},
			"podAntiAffinity": {fields: map[string]*rule{"preferredDuringSchedulingIgnoredDuringExecution": united, "requiredDuringSchedulingIgnoredDuringExecution": united}},
		}},
	}}

	containerRules = &rule{fields: map[string]*rule{
		"terminationMessagePath":   {absent: `"/dev/termination-log"`},
		"terminationMessagePolicy": {absent: `"File"`},
		"env":                      {keys: []string{"name"}, whole: true},
		"envFrom":                  united,
		"ports":                    {keys: []string{"containerPort", "protocol=TCP"}, whole: true, unique: "name"},
		"volumeMounts":             {keys: []string{"mountPath"}, whole: true, beside: "volumeDevices"},
		"volumeDevices":            {keys: []string{"devicePath"}, whole: true, beside: "volumeMounts"},
		"resizePolicy":             {keys: []string{"resourceName"}, whole: true},
		"resources": {fields: map[string]*rule{
			"claims": {keys: []string{"name"}, whole: true}, "requests": {pair: "limits", each: quantity}, "limits": {pair: "requests", each: quantity},
		}},
		"securityContext": {contradicts: privileges, fields: map[string]*rule{
			"capabilities":    {fields: map[string]*rule{"add": united, "drop": united}},
			"seccompProfile":  atomic,
			"appArmorProfile": atomic,
		}},
		"startupProbe":   handler,
		"readinessProbe": handler,
		"livenessProbe":  handler,
		"lifecycle":      {fields: map[string]*rule{"postStart": handler, "preStop": handler}},
	}}
)

// merger merges what one profile says into a pod.
type merger struct {
	editor *editor
	// mine are the trails of what the profile has added before: whatever it is
	// now, it is no conflict.
	mine map[string]bool
	// added are the trails of what it adds now, and of what it has added before
	// and is still in place.
	added []string
	// kept tells what to do where the pod has something else. It is called with
	// the field's path for people and what is said about it.
	kept func(path, message string)
	// clash is kept for what the API server refuses a pod, whoever says it. Nil
	// stands for kept.
	clash func(path, message string)

	// record notes what is created and what stood where something else is put.
	record *record
}

// record is what reverting a merge needs beside what was added.
type record struct {
	// Created are the trails of what was made for what was put into it.
	Created []string `json:"created"`
	// Originals are what stood, by trail, where something else was put.
	Originals map[string]json.RawMessage `json:"originals"`
}

// original notes what stood where something else is put. What was noted first is
// what was there before.
func (r *record) original(trail string, value json.RawMessage) {
	if r.Originals == nil {
		r.Originals = make(map[string]json.RawMessage)
	}
	if _, known := r.Originals[trail]; !known {
		r.Originals[trail] = value
	}
}

// make notes that an object or list is made, where nothing was or null.
func (r *record) make(trail string, was rawjson.Value) {
	r.Created = append(r.Created, trail)
	if was.Kind() == rawjson.Null {
		r.original(trail, json.RawMessage("null"))
	}
}

// place is where a merge is: the JSON pointer for the patch, the trail by which
// it is found again when indexes have changed, and the path for people.
type place struct{ pointer, trail, path string }

func (p place) member(name string) place {
	token := escape(name)
	path := name
	if strings.ContainsAny(name, "./[] ") {
		path = "[" + name + "]"
	} else if p.path != "" {
		path = "." + name
	}
	return place{p.pointer + "/" + token, p.trail + "/" + token, p.path + path}
}

func (p place) element(index int, key string) place {
	n := strconv.Itoa(index)
	return place{p.pointer + "/" + n, p.trail + "/" + key, p.path + "[" + n + "]"}
}

// object merges an object of a template into one of the pod.
func (m *merger) object(at place, own, template rawjson.Value, rules *rule) error {
	if key, twice := own.DuplicateKey(); twice {
		return fmt.Errorf("%s: %w", at.path, &rawjson.DuplicateKeyError{Key: key})
	}
	for nameText, value := range template.Members() {
		name := nameText.Text()
		if rules != nil && rules.contradicts != nil && rules.contradicts(own, name, value) {
			m.kept(at.member(name).path, "what the pod says beside it excludes what the profile says")
			continue
		}
		if rules.excludes(own, name) {
			m.kept(at.path, fmt.Sprintf("the pod has another choice than %q, which the profile makes", name))
			continue
		}
		if err := m.member(at.member(name), own, name, value, rules.field(name)); err != nil {
			return err
		}
	}
	return nil
}

// member merges one member into the object own.
func (m *merger) member(at place, object rawjson.Value, name string, value rawjson.Value, r *rule) error {
	own := object.Get(name)
	if r != nil && r.beside != "" {
		value = m.free(at, object.Get(r.beside), value)
	}
	if r != nil && r.pair != "" {
		value = m.unpaired(at, object.Get(r.pair), own, value)
	}
	switch {
	case value.Kind() == rawjson.Null:
		return nil
	case own == nil:
		value = m.distinct(at, value, r)
		m.note(at.trail, value, r)
		return m.editor.add(at.pointer, object, name, json.RawMessage(value))
	case own.Kind() == rawjson.Null, r != nil && r.absent != "" && r.absent == string(own) && string(own) != string(value):
		value = m.distinct(at, value, r)
		m.record.original(at.trail, json.RawMessage(bytes.Clone(own)))
		m.note(at.trail, value, r)
		return m.editor.replace(at.pointer, own, json.RawMessage(value))
	case own.Kind() == rawjson.Object && value.Kind() == rawjson.Object && (r == nil || !r.whole):
		return m.object(at, own, value, r)
	case own.Kind() == rawjson.Array && value.Kind() == rawjson.Array && r.list():
		return m.list(at, own, m.distinct(at, value, r), r)
	case m.mine[at.trail]:
		m.added = append(m.added, at.trail)
	case !r.equal(own, value):
		m.kept(at.path, fmt.Sprintf("the pod has %s, and the profile says %s", brief(own), brief(value)))
	}
	return nil
}

// distinct is a value without the elements that its lists have twice. That two
// are one may show only now that they are rendered.
func (m *merger) distinct(at place, value rawjson.Value, r *rule) rawjson.Value {
	dst := []byte{'{'}
	switch {
	case r == nil || value.Len() == 0:
		return value
	case value.Kind() == rawjson.Object && !r.whole && len(r.fields) > 0:
		for name, below := range value.Members() {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			text := name.Text()
			dst = append(append(append(dst, name...), ':'), m.distinct(at.member(text), below, r.field(text))...)
		}
		return append(dst, '}')
	case value.Kind() != rawjson.Array || !r.list():
		return value
	}
	first := make(map[string]rawjson.Value, value.Len())
	dst[0] = '['
	for i, element := range value.Elements() {
		key := r.identity(element)
		other, twice := first[key]
		switch {
		case !twice:
			first[key] = element
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(dst, element...)
		case !r.united && !equal(other, element):
			m.kept(at.element(i, key).path, "the profile says two things of the same "+r.keyNames())
		}
	}
	return append(dst, ']')
}

// free is a list of mounts or devices without those whose path is that of one in
// the other list.
func (m *merger) free(at place, other, value rawjson.Value) rawjson.Value {
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
			m.kept(at.path, fmt.Sprintf("the container has a device or mount at %q already", strict.Cut(path(element), 64)))
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

// unpaired are requests or limits without those for which the pod has the other
// of the two alone.
func (m *merger) unpaired(at place, other, own, value rawjson.Value) rawjson.Value {
	if other.Len() == 0 {
		return value
	}
	rest := []byte{'{'}
	for name, quantity := range value.Members() {
		if text := name.Text(); own.Get(text) == nil && other.Get(text) != nil {
			m.kept(at.member(text).path, "the pod says itself what it needs of it")
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

// hosts tells whether a field of a pod's spec cannot stand beside the others: what
// a pod shares with its node, and where it is before it is scheduled.
func hosts(spec rawjson.Value, name string, value rawjson.Value) bool {
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

// privileges tells whether a member of a securityContext cannot stand beside the
// others: a container that may not get more privileges than it starts with is
// neither privileged nor has SYS_ADMIN.
func privileges(object rawjson.Value, name string, value rawjson.Value) bool {
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
func (m *merger) list(at place, own, template rawjson.Value, r *rule) error {
	count := own.Len()
	there := newFinder(own, r, template)
	for _, value := range template.Elements() {
		key := r.key(value)
		index, element := there.find(key, value)
		switch {
		case index < 0 && r.most > 0 && count >= r.most:
			m.kept(at.path, fmt.Sprintf("the pod has %d of at most %d, and the profile adds %s", own.Len(), r.most, brief(value)))
		case index < 0 && m.clashes(at, own, value, r):
		case index < 0:
			count++
			m.added = append(m.added, at.trail+"/"+key)
			if err := m.editor.push(at.pointer+"/-", own, json.RawMessage(value)); err != nil {
				return err
			}
		case m.mine[at.trail+"/"+key]:
			m.added = append(m.added, at.trail+"/"+key)
		case r.united:
		case !r.whole && element.Kind() == rawjson.Object && value.Kind() == rawjson.Object:
			if err := m.object(at.element(index, key), element, value, r); err != nil {
				return err
			}
		case !equal(element, value):
			m.kept(at.element(index, key).path, fmt.Sprintf("the pod has %s, and the profile says %s", brief(element), brief(value)))
		}
	}
	return nil
}

// clashes tells whether an element cannot be added to a list because another one
// has what no two may have.
func (m *merger) clashes(at place, own, value rawjson.Value, r *rule) bool {
	if r.unique == "" || value.Get(r.unique).Text() == "" {
		return false
	}
	text := value.Get(r.unique).Text()
	for i, element := range own.Elements() {
		if element.Get(r.unique).Is(text) {
			clash := m.clash
			if clash == nil {
				clash = m.kept
			}
			clash(at.element(i, "").member(r.unique).path, fmt.Sprintf("%s is the %s of another one that the profile adds", brief(value.Get(r.unique)), r.unique))
			return true
		}
	}
	return false
}

// note remembers what is added where nothing was: each leaf for itself, because
// others may add beside it, and what is around them as created.
func (m *merger) note(trail string, value rawjson.Value, r *rule) {
	switch {
	case value.Kind() == rawjson.Object && value.Len() > 0 && (r == nil || !r.whole):
		m.record.Created = append(m.record.Created, trail)
		for name, below := range value.Members() {
			m.note(trail+"/"+escape(name.Text()), below, r.field(name.Text()))
		}
	case value.Kind() == rawjson.Array && r.list():
		m.record.Created = append(m.record.Created, trail)
		for _, below := range value.Elements() {
			m.added = append(m.added, trail+"/"+r.key(below))
		}
	default:
		m.added = append(m.added, trail)
	}
}

// identity is one text for all elements of a list that are one.
func (r *rule) identity(element rawjson.Value) string {
	if r.united {
		return canonical(element)
	}
	return r.key(element)
}

// keyNames are the members by which the elements of a list are told apart, for
// people.
func (r *rule) keyNames() string {
	names := make([]string, len(r.keys))
	for i, key := range r.keys {
		names[i], _, _ = strings.Cut(key, "=")
	}
	return strings.Join(names, " and ")
}

// equal compares two values of a field.
func (r *rule) equal(a, b rawjson.Value) bool {
	if r != nil && r.quantity {
		x, okX := readQuantity(a)
		y, okY := readQuantity(b)
		if okX && okY {
			return x.Cmp(y) == 0
		}
	}
	return equal(a, b)
}

// find looks for the element with a key.
func find(list rawjson.Value, r *rule, key string, value rawjson.Value) (int, rawjson.Value) {
	for i, element := range list.Elements() {
		if r.united && equal(element, value) || !r.united && r.key(element) == key {
			return i, element
		}
	}
	return -1, nil
}

// equal compares two values as the API server does: the order of members and the
// way in which a number or text is written make no difference.
func equal(a, b rawjson.Value) bool {
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

// brief is a value as it may be shown in a message. Only texts and numbers are
// shown: an object may hold what is nobody's business.
func brief(v rawjson.Value) string {
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
