package template_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct {
		values    map[string]string
		raw, want string
		into      reflect.Type
	}{
		"nothing to fill in":           {raw: `{"name":"a","n":[1,-0.50,true,null,{}],"s":"x\u0041"}`, want: `{"name":"a","n":[1,-0.50,true,null,{}],"s":"xA"}`, into: reflect.TypeFor[anything]()},
		"absent":                       {raw: ``, want: `null`, into: reflect.TypeFor[podSpec]()},
		"types of whole placeholders":  {raw: `["${params.level}","${params.count}","${params.on}","${1.5}","${2u}","${params.cpu}","${params.wait}","${params.port}"]`, want: `["info",3,true,1.5,2,"100m","5s",8181]`, into: reflect.TypeFor[[]any]()},
		"parts of texts":               {raw: `"${params.level}-${params.count}-${params.on}-${1.5}-${1e21}-${2u}$"`, want: `"info-3-true-1.5-1e+21-2$"`, into: reflect.TypeFor[string]()},
		"escapes":                      {raw: `["$${params.level}","$$${params.level}","$","$$","$a{}","a$","$(HOME) $HOME","}${params.level}{"]`, want: `["${params.level}","$${params.level}","$","$$","$a{}","a$","$(HOME) $HOME","}info{"]`, into: reflect.TypeFor[[]string]()},
		"escape in a name":             {raw: `{"$${a":"x"}`, want: `{"${a":"x"}`, into: reflect.TypeFor[map[string]string]()},
		"braces inside of CEL":         {raw: `["${\"}\" + '{' + r'\\}' + \"\\\"}\"}","${ {'a': '}'}['a'] }","${\"\"\"}\"}\"\"\"}"]`, want: `["}{\\}\"}","}","}\"}"]`, into: reflect.TypeFor[[]string]()},
		"comment inside of CEL":        {raw: `"${params.level // }\n}"`, want: `"info"`, into: reflect.TypeFor[string]()},
		"null leaves out":              {raw: `{"a":"${null}","b":["x","${null}","y"],"c":{"d":"${null}"},"e":1}`, want: `{"b":["x","y"],"c":{},"e":1}`, into: reflect.TypeFor[anything]()},
		"no value leaves out":          {raw: `{"a":"${pod.metadata.?labels[?'none']}","b":["${pod.metadata.?labels[?'none']}","y"],"c":"${pod.metadata.?labels[?'app']}"}`, want: `{"b":["y"],"c":"web"}`, into: reflect.TypeFor[anything]()},
		"nothing is left":              {raw: `["${pod.metadata.?labels[?'none']}"]`, want: `[]`, into: reflect.TypeFor[[]string]()},
		"the whole is left out":        {raw: `"${pod.metadata.?labels[?'none']}"`, want: `null`, into: reflect.TypeFor[string]()},
		"pod":                          {raw: `["${pod.metadata.name}","${pod.metadata.namespace}","${pod.metadata.creationTimestamp}","${pod.spec.priority}","${pod.spec.hostNetwork}","${pod.spec.containers[0].ports[0].containerPort}","${pod.spec.containers.map(c, c.name).join(',')}","${pod.spec.containers[0].livenessProbe.httpGet.port}"]`, want: `["web-1","shop","2026-01-02T03:04:05Z",10,false,8080,"app,log","http"]`, into: reflect.TypeFor[[]any]()},
		"namespace":                    {raw: `["${namespace.metadata.name}","${namespace.metadata.labels['team']}","${has(namespace.metadata.annotations.x) ? 'x' : 'none'}","${namespace . metadata.?labels[?'x'].orValue('-')}"]`, want: `["shop","a","none","-"]`, into: reflect.TypeFor[[]string]()},
		"the field namespace":          {raw: `"${pod.metadata.namespace + pod.metadata.?namespace.orValue('') + 'namespace' + namespace.metadata.name}"`, want: `"shopshopnamespaceshop"`, into: reflect.TypeFor[string]()},
		"presets":                      {raw: `"${presets.mesh['address']}"`, want: `"mesh.example:15012"`, into: reflect.TypeFor[string]()},
		"parameters":                   {values: map[string]string{"level": "debug", "count": "-7", "on": "false", "paths": "a, b,c"}, raw: `["${params.level}","${params.count}","${params.on}","${params.paths.join('+')}","${params.count + 1}","${size(params.paths)}"]`, want: `["debug",-7,false,"a+b+c",-6,3]`, into: reflect.TypeFor[[]any]()},
		"functions of Kubernetes":      {raw: `["${quantity(params.cpu).isLessThan(quantity('1'))}","${'a,b'.split(',')[1]}","${url('https://a.example/x').getHost()}"]`, want: `[true,"b","a.example"]`, into: reflect.TypeFor[[]any]()},
		"a number in place of IntOrS.": {raw: `{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":"${params.port}"},"periodSeconds":"${params.count}"},"resources":{"limits":{"cpu":"${params.cpu}","memory":"${params.count}Mi"}}}]}`, want: `{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":8181},"periodSeconds":3},"resources":{"limits":{"cpu":"100m","memory":"3Mi"}}}]}`, into: reflect.TypeFor[podSpec]()},
		"dyn that fits":                {raw: `{"priority":"${dyn(params.port)}","hostIPC":"${dyn(params.on)}","hostname":"${dyn(params.level)}"}`, want: `{"priority":8181,"hostIPC":true,"hostname":"info"}`, into: reflect.TypeFor[podSpec]()},
		"an integral number":           {raw: `{"priority":"${dyn(80.0)}"}`, want: `{"priority":80}`, into: reflect.TypeFor[podSpec]()},

		// A text stays one text.
		"quotes":            {raw: `{"a":"${pod.metadata.annotations['quote']}","b":"<${pod.metadata.annotations['quote']}>"}`, want: `{"a":"a\"b\\c","b":"<a\"b\\c>"}`, into: reflect.TypeFor[map[string]string]()},
		"newline":           {raw: `["${pod.metadata.annotations['newline']}"]`, want: `["a\nb"]`, into: reflect.TypeFor[[]string]()},
		"NUL":               {raw: `["${pod.metadata.annotations['nul']}"]`, want: `["a\u0000b"]`, into: reflect.TypeFor[[]string]()},
		"placeholder":       {raw: `["${pod.metadata.annotations['placeholder']}"]`, want: `["${params.level}"]`, into: reflect.TypeFor[[]string]()},
		"JSON":              {raw: `["${pod.metadata.annotations['json']}"]`, want: `["{\"x\":[1]}"]`, into: reflect.TypeFor[[]string]()},
		"YAML":              {raw: `["${pod.metadata.annotations['yaml']}"]`, want: `["x: y\n- z"]`, into: reflect.TypeFor[[]string]()},
		"another member":    {raw: `{"a":"${pod.metadata.annotations['comma']}"}`, want: `{"a":"\",\"evil\":\"1"}`, into: reflect.TypeFor[map[string]string]()},
		"HTML":              {raw: `["${pod.metadata.annotations['script']}"]`, want: "[\"</script>\u2028\"]", into: reflect.TypeFor[[]string]()},
		"a parameter of it": {values: map[string]string{"image": `","command":["sh"],"x":"${pod.metadata.name}`}, raw: `{"a":"${params.image}","b":"x${params.image}"}`, want: `{"a":"\",\"command\":[\"sh\"],\"x\":\"${pod.metadata.name}","b":"x\",\"command\":[\"sh\"],\"x\":\"${pod.metadata.name}"}`, into: reflect.TypeFor[map[string]string]()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := compile(t, s, tc.raw, tc.into)
			// One tree serves many requests at a time; the race detector watches.
			var group sync.WaitGroup
			for range 4 {
				in := input(t, s, tc.values)
				group.Go(func() {
					for range 2 {
						got, err := tree.Append([]byte("before "), in)
						if err != nil || string(got) != "before "+tc.want {
							t.Errorf("got %s (%v), want %s", got, err, tc.want)
						}
					}
				})
			}
			group.Wait()
			if static, ok := tree.Static(); ok && string(static) != tc.want {
				t.Errorf("Static() = %s", static)
			}
			if sample := tree.Sample(); !json.Valid(sample) {
				t.Errorf("Sample() = %s", sample)
			}
		})
	}
}

// TestAppendErrors: an error names the place in the profile.
func TestAppendErrors(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct{ raw, want string }{
		"no such key":          {`{"hostname":"${pod.metadata.labels['none']}"}`, `the profile's t.hostname: "pod.metadata.labels['none']" fails: no such key: none (hint: for what may be absent, write .?name or [?'key'], and .orValue(…) at the end)`},
		"no such field":        {`{"hostname":"${pod.spec.nodeName}"}`, `the profile's t.hostname: "pod.spec.nodeName" fails: no such key: nodeName (hint: for what may be absent, write .?name or [?'key'], and .orValue(…) at the end)`},
		"overflow":             {`{"priority":"${9223372036854775807 + int(pod.spec.priority)}"}`, `the profile's t.priority: "9223372036854775807 + int(pod.spec.priority)" fails: integer overflow`},
		"too large for 32":     {`{"priority":"${int(pod.metadata.annotations['port'])}"}`, `the profile's t.priority: "int(pod.metadata.annotations['port'])" results in "99999999999", expected a 32-bit integer`},
		"a text for a number":  {`{"priority":"${dyn(pod.metadata.name)}"}`, `the profile's t.priority: "dyn(pod.metadata.name)" results in "web-1", expected a 32-bit integer`},
		"a number for a text":  {`{"hostname":"${pod.spec.containers[0].resources.limits['memory']}"}`, `the profile's t.hostname: "pod.spec.containers[0].resources.limits['memory']" results in "67108864", expected a string`},
		"a text for a size":    {`{"overhead":{"cpu":"${pod.metadata.name}"}}`, `the profile's t.overhead.cpu: "pod.metadata.name" results in "web-1", expected a quantity such as 100m or 64Mi`},
		"a part for a size":    {`{"overhead":{"cpu":"${pod.metadata.name}Mi"}}`, `the profile's t.overhead.cpu: "pod.metadata.name" results in "web-1Mi", expected a quantity such as 100m or 64Mi`},
		"an endless size":      {`{"overhead":{"cpu":"1e21474836${pod.spec.priority}"}}`, `the profile's t.overhead.cpu: "pod.spec.priority" results in "1e2147483610", expected a quantity such as 100m or 64Mi`},
		"a list":               {`{"hostname":"${dyn(pod.spec.containers)}"}`, `the profile's t.hostname: "dyn(pod.spec.containers)" is of type list, and a placeholder must result in a string, a number or a boolean`},
		"a map":                {`{"hostname":"${dyn(pod.metadata)}"}`, `the profile's t.hostname: "dyn(pod.metadata)" is of type map, and a placeholder must result in a string, a number or a boolean`},
		"a map in a text":      {`{"hostname":"x${dyn(pod.metadata)}"}`, `the profile's t.hostname: "dyn(pod.metadata)" is of type map, and a placeholder must result in a string, a number or a boolean`},
		"null in a text":       {`{"hostname":"x${dyn(pod.metadata.name == 'web-1' ? dyn(null) : dyn(1))}"}`, `the profile's t.hostname: "dyn(pod.metadata.name == 'web-1' ? dyn(null) : dyn(1))" is null, which cannot be part of a string`},
		"a namespace":          {`{"hostname":"${dyn(namespace)}"}`, `the profile's t.hostname: "dyn(namespace)" is of type Namespace, and a placeholder must result in a string, a number or a boolean`},
		"infinity":             {`{"hostname":"x${double(pod.spec.priority) / 0.0}"}`, `the profile's t.hostname: "double(pod.spec.priority) / 0.0" is +Inf, which JSON cannot represent`},
		"deep in a list":       {`{"containers":[{"name":"a"},{"name":"b","env":[{"name":"X","value":"${pod.metadata.labels.x}"}]}]}`, `the profile's t.containers[1].env[0].value: "pod.metadata.labels.x" fails: no such key: x (hint: for what may be absent, write .?name or [?'key'], and .orValue(…) at the end)`},
		"no such key, through": {`{"hostname":"${namespace.metadata.labels['` + strings.Repeat("x", 1000) + `']}"}`, `the profile's t.hostname: "namespace.metadata.labels['` + strings.Repeat("x", 53) + `…" fails: no such key: ` + strings.Repeat("x", 180) + `… (hint: for what may be absent, write .?name or [?'key'], and .orValue(…) at the end)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, found := s.Tree("t", []byte(tc.raw), reflect.TypeFor[podSpec]())
			if len(found) > 0 {
				t.Fatal(found)
			}
			_, err := tree.Append(nil, input(t, s, nil))
			var failed *template.EvaluationError
			if !errors.As(err, &failed) || err.Error() != tc.want || errors.Is(err, template.ErrCannotDecide) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			// What is checked when the profile is loaded fits all the same.
			var spec corev1.PodSpec
			if err := json.Unmarshal(tree.Sample(), &spec); err != nil {
				t.Errorf("Sample() = %s: %v", tree.Sample(), err)
			}
		})
	}
}

// offline is what a person may write for a pod, which no API server has seen.
const offline = `{"metadata":{"name":"web","labels":{"app":7,"on":true,"none":null}},"spec":{"hostNetwork":"yes","priority":"high","containers":[{"name":"a"}]}}`

// TestNotOfItsType: offline, a pod may have anything in the place of a text.
func TestNotOfItsType(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for raw, want := range map[string]string{
		`{"a":"${pod.metadata.labels['none']}","b":"${pod.metadata.labels['app']}"}`: `b: "pod.metadata.labels['app']" results in "7", which is an integer, expected a string`,
		`{"b":"app-${pod.metadata.labels['app']}"}`:                                  `b: "pod.metadata.labels['app']" results in "7", which is an integer, expected a string`,
		`{"c":"${pod.metadata.?labels[?'on']}"}`:                                     `c: "pod.metadata.?labels[?'on']" results in "true", which is a boolean, expected a string`,
		`{"d":"${pod.spec.hostNetwork}"}`:                                            `d: "pod.spec.hostNetwork" results in "yes", which is a string, expected a boolean`,
		`{"e":"${pod.spec.priority}"}`:                                               `e: "pod.spec.priority" results in "high", which is a string, expected an integer`,
	} {
		tree := compile(t, s, raw, reflect.TypeFor[anything]())
		in := input(t, s, nil)
		in.Pod = rawjson.Value(offline)
		out, err := tree.Append([]byte("before"), in)
		if string(out) != "before" || err == nil || strings.TrimPrefix(err.Error(), "the profile's spec.template.spec.") != want {
			t.Errorf("got %s, %v, want %s", out, err, want)
		}
	}
}

// TestCannotDecide: a reason that is not in the pod is another kind of error.
func TestCannotDecide(t *testing.T) {
	t.Parallel()
	s := scope(t)
	other, _ := environment(t).Scope(new(celbound.Budget), "other", parameters(), nil)
	for name, tc := range map[string]struct {
		raw, want string
		change    func(in *template.Input)
	}{
		"labels of an unknown namespace": {
			`"${namespace.metadata.labels['a']}"`, `the profile's t: "namespace.metadata.labels['a']": cannot decide: namespace "shop" is not known`,
			func(in *template.Input) { in.Namespace, in.NamespaceName = nil, "shop" },
		},
		"asking for them": {
			`"${has(namespace.metadata.labels.a) ? 'x' : 'y'}"`, `the profile's t: "has(namespace.metadata.labels.a) ? 'x' : 'y'": cannot decide: namespace "shop" is not known`,
			func(in *template.Input) { in.Namespace, in.NamespaceName = nil, "shop" },
		},
		"asking for them, with an alternative": {
			`"${namespace.metadata.?annotations[?'a'].orValue('')}"`, `the profile's t: "namespace.metadata.?annotations[?'a'].orValue('')": cannot decide: namespace "shop" is not known`,
			func(in *template.Input) { in.Namespace, in.NamespaceName = nil, "shop" },
		},
		"an unknown preset": {
			`"${presets.mesh['address']}"`, `the profile's t: "presets.mesh['address']": cannot decide: preset "mesh": there is no ConfigMap`,
			func(in *template.Input) {
				in.Presets = func(string) (map[string]string, error) { return nil, errors.New("there is no ConfigMap") }
			},
		},
		"no presets": {
			`"${presets.mesh['address']}"`, `the profile's t: "presets.mesh['address']": cannot decide: preset "mesh" is not known`,
			func(in *template.Input) { in.Presets = nil },
		},
		"the time is over": {
			`"${pod.metadata.name}"`, `the profile's t: "pod.metadata.name": cannot decide: context canceled`,
			func(in *template.Input) { in.Context = done(t) },
		},
		"the cost of one": {
			`"${pod.metadata.name.contains(pod.metadata.name)}"`, `the profile's t: "pod.metadata.name.contains(pod.metadata.name)": cannot decide: it costs more than 1000000`,
			func(in *template.Input) { in.Pod = named(20_000) },
		},
		"parameters of another profile": {
			`"${params.level}"`, `cannot decide: the parameters are those of profile "other", and not of "proxy"`,
			func(in *template.Input) { in.Params, _ = other.Resolve(nil, nil) },
		},
		"no parameters": {
			`"${params.level}"`, `the profile's t: cannot decide: the parameter has no value`,
			func(in *template.Input) { in.Params = template.Params{} },
		},
		"no parameters, in an expression": {
			`"${params.level + 'x'}"`, `the profile's t: "params.level + 'x'": cannot decide: parameter "level" has no value`,
			func(in *template.Input) { in.Params = template.Params{} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, found := s.Tree("t", []byte(tc.raw), reflect.TypeFor[any]())
			if len(found) > 0 {
				t.Fatal(found)
			}
			in := input(t, s, nil)
			tc.change(in)
			_, err := tree.Append(nil, in)
			var failed *template.EvaluationError
			if !errors.Is(err, template.ErrCannotDecide) || err.Error() != tc.want || errors.As(err, &failed) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// named returns a pod with a long name. CEL reckons that to look for a text in another
// costs a hundredth of the product of their lengths.
func named(length int) rawjson.Value {
	return rawjson.Value(`{"metadata":{"name":"` + strings.Repeat("x", length) + `"}}`)
}

// TestBudget: many expressions, each within its limit, cannot exceed the budget of a pod.
func TestBudget(t *testing.T) {
	t.Parallel()
	s := scope(t)
	tree := compile(t, s, `["${pod.metadata.name.contains(pod.metadata.name)}"]`, reflect.TypeFor[[]bool]())
	in := input(t, s, nil)
	in.Pod = named(9_900)
	for range 10 {
		if _, err := tree.Append(nil, in); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range 2 {
		_, err = tree.Append(nil, in)
	}
	if !errors.Is(err, template.ErrCannotDecide) || !strings.HasSuffix(err.Error(), "the expressions for this pod cost more than 10000000") {
		t.Errorf("there is no end to what a pod may cost: %v", err)
	}
}

// A loop ends when the time is over, and not when it is done.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := scope(t)
	tree := compile(t, s, `["${pod.spec.containers.map(a, pod.spec.containers.map(b, a.name + b.name)).size()}"]`, reflect.TypeFor[[]int]())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := input(t, s, nil)
	in.Context = lateContext{ctx, cancel}
	in.Pod = rawjson.Value(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a"},`, 100) + `{"name":"a"}]}}`)
	_, err := tree.Append(nil, in)
	if !errors.Is(err, template.ErrCannotDecide) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// lateContext is over as soon as somebody waits for it.
type lateContext struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelFunc
}

func (c lateContext) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// A namespace that is not known has a name.
func TestNamespaceName(t *testing.T) {
	t.Parallel()
	s := scope(t)
	tree := compile(t, s, `"${namespace.metadata.name}"`, reflect.TypeFor[string]())
	got, err := tree.Append(nil, &template.Input{NamespaceName: "shop"})
	if err != nil || string(got) != `"shop"` {
		t.Errorf("got %s, %v", got, err)
	}
}

// An input reads another pod when it is given one, as between two profiles.
func TestInputChangesPod(t *testing.T) {
	t.Parallel()
	s := scope(t)
	tree := compile(t, s, `"${pod.metadata.name}"`, reflect.TypeFor[string]())
	in := input(t, s, nil)
	for _, name := range []string{"a", "b"} {
		in.Pod = rawjson.Value(`{"metadata":{"name":"` + name + `"}}`)
		if got, err := tree.Append(nil, in); err != nil || string(got) != `"`+name+`"` {
			t.Errorf("got %s, %v", got, err)
		}
	}
	other := *in
	other.Pod = rawjson.Value(`{"metadata":{"name":"c"}}`)
	if got, err := tree.Append(nil, &other); err != nil || string(got) != `"c"` {
		t.Errorf("a copy gives %s, %v", got, err)
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	required := parameters()
	for i := range required {
		required[i].Default = nil
	}
	required[2].Minimum = text("5")
	s, found := environment(t).Scope(new(celbound.Budget), "proxy", required, presets())
	if len(found) > 0 {
		t.Fatal(found)
	}
	for name, tc := range map[string]struct {
		raw, want string
		into      reflect.Type
	}{
		"parameters without a default": {
			`["${params.level}","${params.image}","${params.count}","${params.port}","${params.on}","${params.cpu}","${params.wait}","${params.paths.join(',')}"]`,
			`["info","sample",5,8080,true,"8080","1s","sample"]`, reflect.TypeFor[[]any](),
		},
		"a usual pod": {
			`["${pod.metadata.labels['app']}","${pod.spec.containers[0].name}","${pod.metadata.namespace}","${namespace.metadata.name}"]`,
			`["app","app","default","default"]`, reflect.TypeFor[[]string](),
		},
		"no result": {
			`{"hostname":"${pod.metadata.labels['none']}","priority":"${int(pod.metadata.labels['none'])}","hostIPC":"${pod.metadata.labels['none'] == 'x'}","overhead":{"cpu":"${pod.metadata.labels['none']}","memory":"${pod.metadata.labels['none']}Mi"},"nodeName":"a-${presets.mesh['x']}-${int(presets.mesh['x'])}"}`,
			`{"hostname":"sample","priority":1,"hostIPC":true,"overhead":{"cpu":"1","memory":"1"},"nodeName":"sample"}`, reflect.TypeFor[podSpec](),
		},
		"no result, and its type is not known": {
			`{"hostname":"${dyn(presets.mesh['x'])}","priority":"${dyn(presets.mesh['x'])}","hostIPC":"${dyn(presets.mesh['x'])}","containers":[{"name":"a","livenessProbe":{"httpGet":{"port":"${dyn(presets.mesh['x'])}"}}}]}`,
			`{"hostname":"sample","priority":1,"hostIPC":true,"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":"sample"}}}]}`, reflect.TypeFor[podSpec](),
		},
		"a result that does not fit": {
			`{"overhead":{"cpu":"${pod.metadata.name}"},"priority":"${4294967296 * pod.spec.containers.size()}"}`, `{"overhead":{"cpu":"1"},"priority":1}`, reflect.TypeFor[podSpec](),
		},
		"nothing fits": {
			`{"overhead":{"cpu":"${pod.metadata.name}Mt"},"priority":"${dyn(pod.metadata.name)}"}`, `{"overhead":{"cpu":"1"},"priority":1}`, reflect.TypeFor[podSpec](),
		},
		"left out": {`{"a":"${pod.metadata.?labels[?'none']}","b":"${pod.metadata.?labels[?'app']}","c":["${pod.metadata.?labels[?'none']}",1]}`, `{"b":"app","c":[1]}`, reflect.TypeFor[anything]()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := compile(t, s, tc.raw, tc.into)
			if got := string(tree.Sample()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if err := json.Unmarshal(tree.Sample(), reflect.New(tc.into).Interface()); err != nil {
				t.Error(err)
			}
		})
	}
}
