package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var _ reconcile.Reconciler = &Greeting{}

// Prints what the packages in the folders export, an item a line: the name of the folder, the name of the item.
func main() {
	for _, folder := range os.Args[1:] {
		names, err := exported(folder)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, name := range names {
			fmt.Println(filepath.Base(folder), name)
		}
	}
}

func exported(folder string) ([]string, error) {
	all, err := sources(folder)
	if err != nil {
		return nil, err
	}
	// Without doc.AllDecls, what is not exported is left out.
	pkg, err := doc.NewFromFiles(all.set, all.files, folder)
	if err != nil {
		return nil, err
	}
	var names []string
	functions := func(found []*doc.Func) {
		for _, function := range found {
			names = append(names, function.Name)
		}
	}
	values := func(found []*doc.Value) {
		for _, value := range found {
			for _, name := range value.Names {
				if ast.IsExported(name) {
					names = append(names, name)
				}
			}
		}
	}
	functions(pkg.Funcs)
	values(pkg.Consts)
	values(pkg.Vars)
	for _, found := range pkg.Types {
		names = append(names, found.Name)
		functions(found.Funcs)
		values(found.Consts)
		values(found.Vars)
	}
	sort.Strings(names)
	return names, nil
}

type parsed struct {
	set   *token.FileSet
	files []*ast.File
}

func sources(folder string) (parsed, error) {
	all := parsed{set: token.NewFileSet()}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return all, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(all.set, path, nil, parser.ParseComments)
		if err != nil {
			return all, err
		}
		all.files = append(all.files, file)
	}
	if len(all.files) == 0 {
		return all, fmt.Errorf("%s has no source", folder)
	}
	return all, nil
}
