// A model that reads texts.
"use strict";

class TextModel extends OpenedModel {
  constructor(session, about) {
    super(session, about);
    this.tokenizer = new lucidTokenizers.Tokenizer(decodedJson("tokenizer.json"), decodedJson("tokenizer_config.json"));
    this.maxLength = about.max_length ?? Infinity;
    const special = [...this.tokenizer.get_added_tokens_decoder().values()].map(({ content }) => content);
    this.mask = special.find((token) => /^[[<]mask[>\]]$/i.test(token));
  }

  // Ids and tokens of a text, or of it and a second one, which begins at the place `second`. One that is too long keeps
  // its beginning and its last token, which ends it.
  cut(text, after) {
    const encode = (options) => this.tokenizer.encode(text, { ...options, return_token_type_ids: true });
    const { ids, tokens, token_type_ids: types } = encode(after ? { text_pair: after } : {});
    const isCut = ids.length > this.maxLength;
    const shortened = (list) => (isCut ? [...list.slice(0, this.maxLength - 1), list.at(-1)] : list);
    const second = after ? encode().ids.length : ids.length;
    return { ids: shortened(ids), tokens: shortened(tokens), types: shortened(types), second, isCut };
  }

  // The outputs for texts, each with a second one if there is one, padded to the longest, with the length that they
  // have then.
  async run(typed, after) {
    const texts = typed.map((text) => this.cut(text, after));
    const length = Math.max(...texts.map(({ ids }) => ids.length));
    const shape = [texts.length, length];
    const ids = new BigInt64Array(texts.length * length);
    const mask = new BigInt64Array(texts.length * length);
    const types = new BigInt64Array(texts.length * length);
    texts.forEach((text, row) => text.ids.forEach((id, place) => {
      ids[row * length + place] = BigInt(id);
      mask[row * length + place] = 1n;
      types[row * length + place] = BigInt(text.types[place]);
    }));
    const arrays = { input_ids: ids, attention_mask: mask, token_type_ids: types };
    const feeds = this.session.inputNames.map((name) => [name, new ort.Tensor("int64", arrays[name], shape)]);
    const found = await this.session.run(Object.fromEntries(feeds));
    return { texts, length, found };
  }
}
