package record

// EachObject calls a function with the ID of every object that the lookups name. Nil lookups name none.
func (l *Lookups) EachObject(visit func(id int)) {
	if l == nil {
		return
	}
	for i := range l.Namespaces {
		visit(l.Namespaces[i].Object)
	}
	for _, objects := range [][]ObjectLookup{l.Objects, l.ConfigMaps} {
		for i := range objects {
			visit(objects[i].Object)
		}
	}
	for i := range l.Lists {
		for _, id := range l.Lists[i].Objects {
			visit(id)
		}
	}
}
