// A file system that keeps unflushed data in memory, and writes the states that a power loss would leave.
//
//	filesystem [-keep N] [-every N] [-ignore files|directories] DIR CUTS COMMAND…
//
// It mounts itself over DIR, treats the existing files as flushed, runs COMMAND with the file `printed` in DIR as standard output,
// and unmounts. Before each flush, and at the end, it writes to CUTS the states that a power loss at that moment could leave:
// CUTS/N-0 contains no unflushed data; CUTS/N-1 and so on, up to -keep, contain a random part of it: 4 KiB pages of the writes,
// and a prefix of the changes of names. `printed` contains what COMMAND has printed by then. Nothing becomes durable between two
// flushes, so an earlier power loss leaves the same state, with less printed.
//
// A name is durable after its directory was flushed, contents after their file was flushed. With -ignore, flushes of files or of
// directories succeed without effect, as on a disk that ignores them. With -every, only every Nth of consecutive flushes of one
// file is a power loss.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// The file for the standard output of the command.
const printed = "printed"

// The unit that a disk writes atomically.
const page = 4096

// disk is the state that all files share. Its lock serializes all operations.
type disk struct {
	sync.Mutex
	root  *directory
	names []naming
	// Whether flushes of files or directories do nothing.
	ignored string
	// The directory of the states, the number of random states per power loss, the interval, and the number so far.
	cuts  string
	keep  int
	every int
	count int
	// The last flushed file, and the number of consecutive flushes.
	last   fs.InodeEmbedder
	inARow int
	// The output of the command.
	printed []byte
	random  *rand.Rand
}

// naming is one unflushed change of a name. Without a child, the name is removed.
type naming []entry

type entry struct {
	in    *directory
	name  string
	child fs.InodeEmbedder
}

func (change naming) apply(to func(*directory) map[string]fs.InodeEmbedder) {
	for _, entry := range change {
		if entry.child == nil {
			delete(to(entry.in), entry.name)
		} else {
			to(entry.in)[entry.name] = entry.child
		}
	}
}

func (change naming) concerns(one *directory) bool {
	return slices.ContainsFunc(change, func(entry entry) bool { return entry.in == one })
}

type directory struct {
	fs.Inode
	disk    *disk
	flushed map[string]fs.InodeEmbedder
}

type file struct {
	fs.Inode
	disk    *disk
	mode    uint32
	data    []byte
	flushed []byte
	changes []change
}

// change is a write at an offset, or, without bytes, a change of size.
type change struct {
	at    int
	bytes []byte
}

func (change change) apply(to []byte) []byte {
	if change.bytes == nil {
		return resize(to, change.at)
	}
	to = resize(to, max(len(to), change.at+len(change.bytes)))
	copy(to[change.at:], change.bytes)
	return to
}

func resize(data []byte, size int) []byte {
	if size <= len(data) {
		return data[:size:size]
	}
	return append(data, make([]byte, size-len(data))...)
}

// parts returns the parts of a change that a disk writes independently.
func (one change) parts() []change {
	if one.bytes == nil {
		return []change{one}
	}
	var parts []change
	for at, rest := one.at, one.bytes; len(rest) > 0; {
		size := min(len(rest), page-at%page)
		parts = append(parts, change{at, rest[:size]})
		at, rest = at+size, rest[size:]
	}
	return parts
}

// remains returns the contents of a file after a power loss.
func (f *file) remains(whole bool) []byte {
	data := slices.Clone(f.flushed)
	if whole {
		return data
	}
	for _, change := range f.changes {
		for _, part := range change.parts() {
			if f.disk.random.IntN(2) == 0 {
				data = part.apply(data)
			}
		}
	}
	return data
}

// flush is called before every flush.
func (d *disk) flush(what fs.InodeEmbedder) {
	if what != d.last {
		d.last, d.inARow = what, 0
	}
	if d.inARow%d.every == 0 {
		d.cut()
	}
	d.inARow++
}

// cut writes the states that a power loss at this moment would leave.
func (d *disk) cut() {
	for variant := range d.keep + 1 {
		first := variant == 0
		names := make(map[*directory]map[string]fs.InodeEmbedder)
		of := func(one *directory) map[string]fs.InodeEmbedder {
			if names[one] == nil {
				names[one] = make(map[string]fs.InodeEmbedder)
				for name, child := range one.flushed {
					names[one][name] = child
				}
			}
			return names[one]
		}
		if !first {
			for _, change := range d.names[:d.random.IntN(len(d.names)+1)] {
				change.apply(of)
			}
		}
		to := filepath.Join(d.cuts, fmt.Sprintf("%d-%d", d.count, variant))
		d.write(d.root, to, of, first)
		must(os.WriteFile(filepath.Join(to, printed), d.printed, 0o600))
	}
	d.count++
}

func (d *disk) write(from *directory, to string, names func(*directory) map[string]fs.InodeEmbedder, whole bool) {
	must(os.Mkdir(to, 0o700))
	for name, child := range names(from) {
		path := filepath.Join(to, name)
		switch child := child.(type) {
		case *directory:
			d.write(child, path, names, whole)
		case *file:
			must(os.WriteFile(path, child.remains(whole), os.FileMode(child.mode)))
		}
	}
}

// load reads the existing files and treats them as flushed.
func (d *disk) load(path string) *directory {
	found := &directory{disk: d, flushed: make(map[string]fs.InodeEmbedder)}
	entries, err := os.ReadDir(path)
	must(err)
	for _, entry := range entries {
		path := filepath.Join(path, entry.Name())
		if entry.IsDir() {
			found.flushed[entry.Name()] = d.load(path)
			continue
		}
		data, err := os.ReadFile(path)
		must(err)
		found.flushed[entry.Name()] = &file{disk: d, mode: 0o600, data: slices.Clone(data), flushed: data}
	}
	return found
}

// OnAdd passes the loaded names to the kernel.
func (dir *directory) OnAdd(ctx context.Context) {
	for name, child := range dir.flushed {
		dir.AddChild(name, dir.inode(ctx, child), false)
	}
}

func (dir *directory) inode(ctx context.Context, child fs.InodeEmbedder) *fs.Inode {
	mode := uint32(fuse.S_IFREG)
	if _, is := child.(*directory); is {
		mode = fuse.S_IFDIR
	}
	return dir.NewPersistentInode(ctx, child, fs.StableAttr{Mode: mode})
}

func (dir *directory) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o700
	return 0
}

func (dir *directory) Setattr(context.Context, fs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return 0
}

// Statfs reports enough free space for every test.
func (dir *directory) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Bsize: page, Frsize: page, Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, Files: 1 << 20, Ffree: 1 << 20, NameLen: 255}
	return 0
}

func (dir *directory) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	dir.disk.Lock()
	defer dir.disk.Unlock()
	if name == printed && dir == dir.disk.root {
		return dir.inode(ctx, &output{disk: dir.disk}), nil, fuse.FOPEN_DIRECT_IO, 0
	}
	made := &file{disk: dir.disk, mode: mode & 0o777}
	made.attributes(&out.Attr)
	dir.disk.names = append(dir.disk.names, naming{{dir, name, made}})
	return dir.inode(ctx, made), nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (dir *directory) Mkdir(ctx context.Context, name string, _ uint32, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	dir.disk.Lock()
	defer dir.disk.Unlock()
	made := &directory{disk: dir.disk, flushed: make(map[string]fs.InodeEmbedder)}
	dir.disk.names = append(dir.disk.names, naming{{dir, name, made}})
	return dir.inode(ctx, made), 0
}

func (dir *directory) Unlink(_ context.Context, name string) syscall.Errno {
	dir.disk.Lock()
	defer dir.disk.Unlock()
	dir.disk.names = append(dir.disk.names, naming{{dir, name, nil}})
	return 0
}

func (dir *directory) Rename(_ context.Context, name string, to fs.InodeEmbedder, toName string, flags uint32) syscall.Errno {
	dir.disk.Lock()
	defer dir.disk.Unlock()
	target, is := to.(*directory)
	if !is || flags != 0 {
		return syscall.EINVAL
	}
	moved := dir.GetChild(name).Operations()
	dir.disk.names = append(dir.disk.names, naming{{dir, name, nil}, {target, toName, moved}})
	return 0
}

func (dir *directory) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	dir.disk.Lock()
	defer dir.disk.Unlock()
	dir.disk.flush(dir)
	if dir.disk.ignored == "directories" {
		return 0
	}
	rest := dir.disk.names[:0]
	for _, change := range dir.disk.names {
		if change.concerns(dir) {
			change.apply(func(one *directory) map[string]fs.InodeEmbedder { return one.flushed })
		} else {
			rest = append(rest, change)
		}
	}
	dir.disk.names = rest
	return 0
}

func (f *file) attributes(out *fuse.Attr) {
	out.Mode = f.mode
	out.Size = uint64(len(f.data))
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.disk.Lock()
	defer f.disk.Unlock()
	f.attributes(&out.Attr)
	return 0
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.disk.Lock()
	defer f.disk.Unlock()
	if size, set := in.GetSize(); set {
		f.change(change{at: int(size)})
	}
	if mode, set := in.GetMode(); set {
		f.mode = mode & 0o777
	}
	f.attributes(&out.Attr)
	return 0
}

func (f *file) change(one change) {
	f.data = one.apply(f.data)
	f.changes = append(f.changes, one)
}

// Open keeps the cache, so that the kernel shares a mapping between processes.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, into []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	f.disk.Lock()
	defer f.disk.Unlock()
	begin := min(int(at), len(f.data))
	end := min(begin+len(into), len(f.data))
	return fuse.ReadResultData(slices.Clone(f.data[begin:end])), 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	f.disk.Lock()
	defer f.disk.Unlock()
	f.change(change{int(at), append([]byte{}, data...)})
	return uint32(len(data)), 0
}

// Flush is called by close. It makes nothing durable.
func (f *file) Flush(context.Context, fs.FileHandle) syscall.Errno {
	return 0
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	f.disk.Lock()
	defer f.disk.Unlock()
	f.disk.flush(f)
	if f.disk.ignored != "files" {
		f.flushed, f.changes = slices.Clone(f.data), nil
	}
	return 0
}

// output receives the output of the command. It uses direct I/O, so that the output is known before the command continues.
type output struct {
	fs.Inode
	disk *disk
}

func (o *output) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	o.disk.Lock()
	defer o.disk.Unlock()
	o.disk.printed = append(o.disk.printed, data...)
	return uint32(len(data)), 0
}

func main() {
	log.SetFlags(0)
	keep := flag.Int("keep", 0, "states with some of what was not flushed, for each cut")
	every := flag.Int("every", 1, "of flushes of one file in a row, which are cuts")
	ignored := flag.String("ignore", "", "flushes that do nothing: files or directories")
	flag.Parse()
	if flag.NArg() < 3 {
		log.Fatal("filesystem [-keep N] [-every N] [-ignore files|directories] DIR CUTS COMMAND…")
	}
	dir, cuts, command := flag.Arg(0), flag.Arg(1), flag.Args()[2:]
	disk := &disk{cuts: cuts, keep: *keep, every: *every, ignored: *ignored, random: rand.New(rand.NewPCG(1, 2))}
	disk.root = disk.load(dir)
	server, err := fs.Mount(dir, disk.root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "filesystem"}})
	must(err)
	run := exec.Command("sh", append([]string{"-c", `exec "$@" >"$0"`, filepath.Join(dir, printed)}, command...)...)
	run.Stderr = os.Stderr
	failure := run.Run()
	disk.Lock()
	disk.cut()
	disk.Unlock()
	must(server.Unmount())
	var exit *exec.ExitError
	if errors.As(failure, &exit) {
		os.Exit(1)
	}
	must(failure)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
