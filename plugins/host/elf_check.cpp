#include "plugins/host/elf_check.h"

#include <elf.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

namespace foresay::plugins {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
constexpr std::uint16_t kMachine = EM_NONE;
#endif

constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 32;  // bytes that a plugin's segments may take

class Image {
public:
    explicit Image(std::span<const std::byte> bytes) : bytes_(bytes) {}
    bool holds(std::uint64_t offset, std::uint64_t size) const {
        return offset <= bytes_.size() && size <= bytes_.size() - offset;
    }
    template <typename T>
    std::optional<T> read(std::uint64_t offset) const {
        if (!holds(offset, sizeof(T))) return std::nullopt;
        T value;
        std::memcpy(&value, bytes_.data() + offset, sizeof value);
        return value;
    }
    // The terminated text at `offset` of a table of `size` bytes at `table`; nothing when it has no end in the table.
    std::optional<std::string_view> text(std::uint64_t table, std::uint64_t size, std::uint64_t offset) const {
        if (!holds(table, size) || offset >= size) return std::nullopt;
        const char* start = reinterpret_cast<const char*>(bytes_.data()) + table + offset;
        const void* end = std::memchr(start, 0, size - offset);
        if (end == nullptr) return std::nullopt;
        return std::string_view(start, static_cast<std::size_t>(static_cast<const char*>(end) - start));
    }

private:
    std::span<const std::byte> bytes_;
};

std::string header_problem(const Image& image, Elf64_Ehdr& header) {
    const auto read = image.read<Elf64_Ehdr>(0);
    if (!read || std::memcmp(read->e_ident, ELFMAG, SELFMAG) != 0) return "it is not a shared object (ELF) file";
    header = *read;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != kMachine) {
        return "it was built for another kind of machine";
    }
    if (header.e_type != ET_DYN) return "it is an ELF file but not a shared object";
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
        !image.holds(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
        return "its segment table is damaged or the file is truncated";
    }
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
        !image.holds(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
        return "its section table is damaged or the file is truncated";
    }
    return {};
}

std::string segment_problem(const Image& image, const Elf64_Ehdr& header) {
    std::uint64_t last = 0;
    bool loads = false;
    for (std::uint16_t i = 0; i < header.e_phnum; ++i) {
        const auto segment = image.read<Elf64_Phdr>(header.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr));
        if (!segment) return "its segment table is damaged";
        if (segment->p_type == PT_INTERP) return "it is a program, not a plugin";
        if (segment->p_type != PT_LOAD && segment->p_type != PT_DYNAMIC) continue;
        if (!image.holds(segment->p_offset, segment->p_filesz) || segment->p_filesz > segment->p_memsz ||
            segment->p_memsz > kMaxMemory || segment->p_vaddr > kMaxMemory) {
            return "a segment reaches beyond the file, which is damaged or truncated";
        }
        if (segment->p_type != PT_LOAD) continue;
        const bool page_ok = std::has_single_bit(segment->p_align) &&
                             segment->p_vaddr % segment->p_align == segment->p_offset % segment->p_align;
        if (segment->p_align > kMaxMemory || !page_ok || segment->p_vaddr < last) return "a segment is misplaced";
        last = segment->p_vaddr + segment->p_memsz;
        loads = true;
    }
    return loads ? "" : "it has nothing to load";
}

std::string symbol_problem(const Image& image, const Elf64_Ehdr& header, std::string_view name, std::size_t bytes) {
    for (std::uint16_t i = 0; i < header.e_shnum; ++i) {
        const auto section = image.read<Elf64_Shdr>(header.e_shoff + std::uint64_t{i} * sizeof(Elf64_Shdr));
        if (!section) return "its section table is damaged";
        if (section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL &&
            !image.holds(section->sh_offset, section->sh_size)) {
            return "a section reaches beyond the file, which is damaged or truncated";
        }
        if (section->sh_type != SHT_DYNSYM) continue;
        const auto strings = section->sh_link < header.e_shnum
                                 ? image.read<Elf64_Shdr>(header.e_shoff + section->sh_link * sizeof(Elf64_Shdr))
                                 : std::nullopt;
        if (!strings || strings->sh_type != SHT_STRTAB) return "its symbol table is damaged";
        for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = image.read<Elf64_Sym>(section->sh_offset + at);
            const auto text = symbol ? image.text(strings->sh_offset, strings->sh_size, symbol->st_name) : std::nullopt;
            if (!text) return "its symbol table is damaged";
            if (*text != name || symbol->st_shndx == SHN_UNDEF) continue;
            if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size < bytes) {
                return "its '" + std::string(name) + "' is not what a sampler plugin exports";
            }
            return {};
        }
    }
    return "it does not export '" + std::string(name) + "', so it is not a sampler plugin";
}

}  // namespace

std::vector<std::string> exported_symbols(std::span<const std::byte> file) {
    const Image image(file);
    std::vector<std::string> names;
    const auto header = image.read<Elf64_Ehdr>(0);
    for (std::uint16_t i = 0; header && i < header->e_shnum; ++i) {
        const auto section = image.read<Elf64_Shdr>(header->e_shoff + std::uint64_t{i} * sizeof(Elf64_Shdr));
        if (!section || section->sh_type != SHT_DYNSYM || section->sh_link >= header->e_shnum) continue;
        const auto strings = image.read<Elf64_Shdr>(header->e_shoff + section->sh_link * sizeof(Elf64_Shdr));
        for (std::uint64_t at = 0; strings && at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = image.read<Elf64_Sym>(section->sh_offset + at);
            if (!symbol || symbol->st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
            const auto text = image.text(strings->sh_offset, strings->sh_size, symbol->st_name);
            if (text) names.emplace_back(*text);
        }
    }
    return names;
}

std::string elf_problem(std::span<const std::byte> file, std::string_view symbol, std::size_t symbol_bytes) {
    const Image image(file);
    Elf64_Ehdr header{};
    if (file.empty()) return "the file is empty";
    std::string problem = header_problem(image, header);
    if (problem.empty()) problem = segment_problem(image, header);
    if (problem.empty()) problem = symbol_problem(image, header, symbol, symbol_bytes);
    return problem;
}

}  // namespace foresay::plugins
