package expression_test

import "testing"

// TestSameInWhatIsTaken has where something may be gone, or stand elsewhere: only
// where that can make a rule no worse.
func TestSameInWhatIsTaken(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	const (
		foreign = "object.c.filter(c, !c.image.startsWith('good/'))"
		two     = `{"c": [{"image": "bad/x"}, {"image": "bad/y"}]}`
		one     = `{"c": [{"image": "bad/y"}]}`
		swapped = `{"c": [{"image": "bad/y"}, {"image": "bad/x"}]}`
		none    = `{"c": []}`
		texts   = `{"l": ["a", "b"]}`
		text    = `{"l": ["b"]}`
		turned  = `{"l": ["b", "a"]}`
		noTexts = `{"l": []}`
		members = `{"m": {"x": "1", "y": "2"}}`
		member  = `{"m": {"y": "2"}}`
		inner   = `{"c": [{"a": [], "b": ["ALL"]}]}`
		noInner = `{"c": [{"a": [], "b": []}]}`
	)
	for name, test := range map[string]struct {
		variables   []pair
		expression  string
		old, object string
		same        bool
	}{
		"one of two that are bad":              {nil, "object.c.all(c, c.image.startsWith('good/'))", two, one, true},
		"one of two that a filter leaves":      {nil, foreign + ".size() == 0", two, one, true},
		"the same through a variable":          {[]pair{{"foreign", foreign}}, "variables.foreign.size() == 0", two, one, true},
		"the same through two variables":       {[]pair{{"all", "object.c + object.?i.orValue([])"}, {"foreign", "variables.all.filter(c, !c.image.startsWith('good/'))"}}, "size(variables.foreign) == 0", two, one, true},
		"of a sum of filters":                  {[]pair{{"f", foreign}}, "(variables.f + object.?i.orValue([]).filter(c, c.image == '')).size() < 1", two, one, true},
		"a filter is empty":                    {nil, foreign + " == []", two, one, true},
		"empty is a filter":                    {nil, "[] == " + foreign, two, one, true},
		"a filter that is not of some size":    {nil, "!(0 < size(" + foreign + "))", two, one, true},
		"a filter that is not empty, denied":   {nil, "!(" + foreign + " != [])", two, one, true},
		"what is mapped":                       {nil, foreign + ".map(c, c.image).size() == 0", two, one, true},
		"a filter with few":                    {nil, foreign + ".size() <= 1", two, one, true},
		"a filter with few, mirrored":          {nil, "1 >= " + foreign + ".size()", two, one, true},
		"a filter of which all are so":         {nil, foreign + ".all(c, c.image != 'bad/x')", two, one, true},
		"no filter is of that size":            {nil, foreign + ".size() == 1", two, one, false},
		"a filter has some":                    {nil, foreign + ".size() > 0", two, one, false},
		"a filter is not empty":                {nil, foreign + " != []", two, one, false},
		"there is none":                        {nil, "!object.c.exists(c, c.image.startsWith('bad/'))", two, one, true},
		"a bound that the object has":          {nil, "object.c.size() <= object.k", `{"k": 1, "c": [1, 2]}`, `{"k": 1, "c": [1]}`, true},
		"a bound that is another size":         {nil, "object.c.size() <= object.l.size()", `{"l": [1, 2], "c": []}`, `{"l": [1], "c": []}`, false},
		"two loops over one list":              {nil, "object.c.exists(c, c.image == 'bad/x') && object.c.all(c, c.image.startsWith('good/'))", two, one, false},
		"two loops, one through a variable":    {[]pair{{"c", "object.c"}}, "variables.c.size() > 1 && object.c.all(c, c.image.startsWith('good/'))", two, one, false},
		"one or the other":                     {nil, "object.c.all(c, c.image == '') || object.c.size() < 2", two, one, true},
		"only if":                              {nil, "object.c.all(c, c.image == 'bad/y') ? object.k == 1 : true", two, one, false},
		"all as a value":                       {nil, "object.c.all(c, c.image == '') == false", two, one, false},
		"not all":                              {nil, "!object.c.all(c, c.image == 'bad/y')", two, one, false},
		"exactly one":                          {nil, "object.c.exists_one(c, c.image == 'bad/x')", two, one, false},
		"exactly one, another order":           {nil, "object.c.exists_one(c, c.image == 'bad/x')", two, swapped, true},
		"another order of what is counted":     {nil, "object.c.size() >= 2", two, swapped, true},
		"at least some":                        {nil, "object.l.size() >= 3", texts, noTexts, false},
		"at least some, denied":                {nil, "!(object.l.size() >= 3)", texts, noTexts, true},
		"by number":                            {nil, "object.l[0] == 'a' && object.l[1] == 'b'", texts, turned, false},
		"by number, the last is gone":          {nil, "object.l[0] == 'b'", turned, text, false},
		"by index and value":                   {nil, "object.l.all(i, v, i > 0 || v != 'b')", texts, turned, false},
		"by index and value, one gone":         {nil, "object.l.all(i, v, i > 0 || v != 'b')", texts, text, false},
		"sorted":                               {nil, "object.l.isSorted()", texts, turned, false},
		"joined":                               {nil, "object.l.join(',') == 'a,b'", texts, turned, false},
		"index of":                             {nil, "object.l.indexOf('b') == 1", texts, turned, false},
		"the list itself":                      {nil, "object.l == ['a', 'b']", texts, turned, false},
		"mapped, then the list itself":         {nil, "object.l.map(x, x + '/') == ['a/', 'b/']", texts, turned, false},
		"the first of what is left":            {nil, foreign + "[0].image == 'bad/x'", two, swapped, false},
		"how many there are":                   {nil, "object.l.size() == 2", texts, turned, true},
		"not empty":                            {nil, "object.l != []", texts, text, false},
		"empty":                                {nil, "object.l == []", texts, text, true},
		"what is required within":              {nil, "object.c.all(c, c.b.exists(d, d == 'ALL'))", inner, noInner, false},
		"what is required within, filtered":    {nil, "object.c.filter(c, !c.b.exists(d, d == 'ALL')).size() == 0", inner, noInner, false},
		"what is required within, counted":     {nil, "object.c.filter(c, c.b.size() < 1).size() == 0", inner, noInner, false},
		"what is forbidden within":             {nil, "object.c.all(c, !c.b.exists(d, d == 'ALL'))", inner, noInner, true},
		"what is forbidden within, filtered":   {nil, "object.c.filter(c, c.b.exists(d, d == 'ALL')).size() == 0", inner, noInner, true},
		"what a filter with few forbids":       {nil, "object.c.filter(c, c.b.exists(d, d == 'ALL')).size() <= 1", inner, noInner, false}, // an error may come of it
		"an outer one is gone":                 {nil, "object.c.all(c, c.b.exists(d, d == 'ALL'))", inner, none, true},
		"members":                              {nil, "object.m.all(k, k != 'x')", members, member, true},
		"members and their values":             {nil, "object.m.all(k, v, v != '1')", members, member, true},
		"members by their names":               {nil, "object.m.all(k, object.m[k] != '1')", members, member, true},
		"members by the names of a variable":   {[]pair{{"m", "object.m"}}, "variables.m.all(k, variables.m[k] != '1')", members, member, true},
		"members by the names of others":       {nil, "object.n.all(k, object.m[k] != '1')", `{"n": {"x": ""}, "m": {"x": "2"}}`, `{"n": {"x": ""}, "m": {}}`, false},
		"members by a name and what else":      {nil, "(object.k == 1 ? object.m : {'x': '2'}).all(k, object.m[k] == '2')", `{"k": 2, "m": {"x": "2"}}`, `{"k": 2, "m": {}}`, false},
		"members by a name of what is hidden":  {nil, "object.c.all(x, x.m.all(k, [object].all(x, x.m[k] == 'a')))", `{"c": [{"m": {"x": "a"}}], "m": {"x": "a"}}`, `{"c": [{"m": {"x": "a"}}], "m": {}}`, false},
		"members by a name declared again":     {nil, "object.m.all(k, ['x'].all(k, object.m[k] == '1'))", members, member, false},
		"members by a value of that name":      {nil, "object.m.all(k, object.n.all(i, k, object.m[k] == '1'))", `{"n": {"a": "x"}, "m": {"x": "1"}}`, `{"n": {"a": "x"}, "m": {}}`, false},
		"members by an optional of that name":  {nil, "object.m.all(k, optional.of('x').optMap(k, object.m[k] == '1').orValue(true))", members, member, false},
		"the first member":                     {nil, "object.m.map(k, k)[0] == 'x'", members, `{"m": {"y": "2", "x": "1"}}`, false},
		"members in another order":             {nil, "object.m.exists(k, v, v == '1')", members, `{"m": {"y": "2", "x": "1"}}`, true},
		"members of which one must be":         {nil, "object.m.exists(k, v, v == '1')", members, member, false},
		"few members":                          {nil, "object.m.size() <= 1", members, member, true},
		"many members":                         {nil, "size(object.m) > 1", members, member, false},
		"no member":                            {nil, "object.m == {}", members, member, true},
		"all members gone, and the map":        {nil, "object.?m.orValue({}).all(k, k != 'x')", members, `{}`, true},
		"a member must be, and the map is not": {nil, "object.?m.orValue({}).exists(k, k == 'x')", members, `{}`, false},
		"a member that must be":                {nil, "has(object.m.x)", members, member, false},
		"a name that must be":                  {nil, "'x' in object.m", members, member, false},
		"a text that must be":                  {nil, "'a' in object.l", texts, text, false},
		"each of two lists":                    {nil, "(object.l + object.l).all(x, x == '')", texts, text, true},
		"a list in a list":                     {nil, "[object.l].all(l, l.size() < 2)", texts, text, true},
		"a list that is there":                 {nil, "object.?l.optMap(l, l.all(x, x == '')).orValue(true)", texts, text, false}, // what an optional has is not told apart
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := compile(t, compiler, declare(t, compiler, test.variables...), test.expression)
			if got := sameIn(program.Reads(), parse(t, test.object), parse(t, test.old)); got != test.same {
				t.Errorf("%s, from %s to %s: same = %v", test.expression, test.old, test.object, got)
			}
		})
	}
}
